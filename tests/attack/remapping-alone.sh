#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As remapping.sh, where Linux uses the IOMMU for interrupts alone.
# kernels: 6.1 6.12
# realm: no
# shared: yes
# boot: intel_iommu=off
# tier: full
# timeout: 600
# uses: remapping
set -u
attack_remapping
