#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The same as guest/vfio, with tables of the first stage.
# kernels: 6.12
# more kernels: 6.1
# tier: full
# realm: no
# shared: yes
# devices: yes
# uses: edu alike vfio
# iommu: x-scalable-mode=on,x-flts=on
# timeout: 900
set -u
alike_by_vfio
