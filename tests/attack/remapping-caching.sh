#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As remapping.sh, for an IOMMU that caches what is absent.
# kernels: 6.1 6.12
# realm: no
# shared: yes
# iommu: caching-mode=on
# tier: full
# timeout: 600
# uses: remapping
set -u
attack_remapping
