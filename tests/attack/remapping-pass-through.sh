#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As remapping.sh, where Linux does not translate for its devices.
# kernels: 6.1 6.12
# realm: no
# shared: yes
# boot: iommu=pt
# tier: full
# timeout: 600
# uses: remapping
set -u
attack_remapping
