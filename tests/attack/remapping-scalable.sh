#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As remapping.sh, for an IOMMU in scalable mode.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# iommu: x-scalable-mode=on
# timeout: 600
# uses: remapping
set -u
attack_remapping
