#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As vfio.sh, where the IOMMU is AMD's.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# iommu: amd
# tier: full
# uses: edu vfio hostile-vfio
# timeout: 900
# full: ROUNDS=40
set -u
attack_by_vfio
