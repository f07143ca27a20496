#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An IOMMU in scalable mode, with tables of the first stage: those of processors.
# kernels: 6.12
# tier: full
# more kernels: 6.1
# realm: no
# devices: yes
# uses: edu
# packages: fio
# iommu: x-scalable-mode=on,x-flts=on
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
dmesg | grep -q 'ecap 880000' || fail 'no first stage'
disk_goes_on 2
cell_has_edu
exit $failed
