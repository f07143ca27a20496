#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As net-inet.sh, where the IOMMU is AMD's.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# iommu: amd
# uses: net peer alike net-inet
# timeout: 900
set -u
udp_and_tcp_alike
