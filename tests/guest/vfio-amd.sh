#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The same as guest/vfio, where the IOMMU is AMD's.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# uses: edu alike vfio
# iommu: amd
# timeout: 900
set -u
alike_by_vfio
