#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The same as guest/vfio, in scalable mode with tables of the second stage.
# kernels: 6.12
# more kernels: 6.1
# tier: full
# realm: no
# shared: yes
# devices: yes
# uses: edu alike vfio
# iommu: x-scalable-mode=on
# timeout: 900
set -u
alike_by_vfio
