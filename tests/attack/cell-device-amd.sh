#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A cell's device attacks, and Linux attacks it, where the IOMMU is AMD's.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# smp: 5
# tier: full
# iommu: amd
# timeout: 1200
# full: COUNT=2048
# uses: victim edu hostile-device hostile-device-amd
set -u
attack_by_device
