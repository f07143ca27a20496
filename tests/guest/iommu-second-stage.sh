#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An IOMMU in scalable mode, with tables of the second stage.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: edu
# packages: fio
# tier: full
# iommu: x-scalable-mode=on
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
dmesg | grep -q 'ecap 480080' || fail 'no scalable mode'
disk_goes_on 2
cell_has_edu
exit $failed
