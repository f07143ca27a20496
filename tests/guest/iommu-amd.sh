#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An IOMMU of AMD's kind, which caches what is absent, so that Linux tells of all that it maps.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: edu
# packages: fio
# iommu: amd
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
[ -d /sys/class/iommu/ivhd0 ] || fail 'no AMD-Vi'
dmesg | grep -q 'AMD-Vi: Interrupt remapping enabled' || fail 'interrupts are not remapped'
dmesg | grep -q 'AMD-Vi: X2APIC enabled' || fail 'no x2APIC'
grep -qx DMA /sys/kernel/iommu_groups/1/type || fail 'Linux is lazy'
disk_goes_on 2
# Others do not cache that, and Linux tells late of what it unmaps.
echo DMA-FQ >/sys/class/nvme/nvme0/device/iommu_group/type || fail 'Linux is not lazy'
disk_goes_on 2
cell_has_edu
exit $failed
