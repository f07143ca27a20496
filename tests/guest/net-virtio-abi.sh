#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As net-abi.sh, with network devices of virtio.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: virtio
# uses: net alike net-abi
# timeout: 900
set -u
packets_alike
