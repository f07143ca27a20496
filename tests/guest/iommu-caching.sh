#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An IOMMU that caches what is absent, so that Linux tells of all that it maps.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: edu
# packages: fio
# tier: full
# iommu: caching-mode=on
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
grep -qx DMA /sys/kernel/iommu_groups/1/type || fail 'Linux is lazy'
disk_goes_on 2
cell_has_edu
exit $failed
