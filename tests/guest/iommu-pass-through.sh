#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An IOMMU by which Linux does not translate for its devices.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: edu
# packages: fio
# boot: iommu=pt
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
grep -qx identity /sys/kernel/iommu_groups/1/type || fail 'Linux translates'
disk_goes_on 2
cell_has_edu
exit $failed
