#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An IOMMU of AMD's kind by which Linux does not translate for its devices.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: edu
# packages: fio
# tier: full
# iommu: amd
# boot: iommu=pt
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
[ -d /sys/class/iommu/ivhd0 ] || fail 'no AMD-Vi'
grep -qx identity /sys/kernel/iommu_groups/1/type || fail 'Linux translates'
disk_goes_on 2
cell_has_edu
exit $failed
