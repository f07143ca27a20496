#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As remapping-amd.sh, where Linux does not translate for its devices.
# kernels: 6.12
# realm: no
# devices: yes
# iommu: amd
# boot: iommu=pt
# tier: full
# timeout: 600
# uses: victim space remapping-amd
set -u
grep -qx identity /sys/kernel/iommu_groups/1/type || { echo 'Linux translates'; exit 1; }
attack_remapping 128
