#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The same as guest/vfio, where the IOMMU is AMD's, by which cells have no lines. Beside 6.1 alone,
# faults of Linux's own device make its driver restart QEMU's log for ever.
# tier: full
# kernels: 6.12
# realm: no
# shared: yes
# devices: yes
# uses: edu alike vfio
# iommu: amd
# timeout: 900
set -u
export NO_PIN=1
alike_by_vfio
