#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As uio.sh, where the IOMMU is AMD's.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# packages: pciutils
# devices: yes
# iommu: amd
# uses: edu alike uio
# timeout: 900
set -u
drive_by_uio
