#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As net-abi.sh, where the IOMMU is AMD's.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# iommu: amd
# uses: net alike net-abi
# timeout: 900
set -u
packets_alike
