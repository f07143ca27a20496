#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An IOMMU that Linux uses for interrupts alone.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: edu
# packages: fio
# boot: intel_iommu=off
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
[ -z "$(ls /sys/kernel/iommu_groups)" ] || fail 'Linux translates'
disk_goes_on 2
cell_has_edu
exit $failed
