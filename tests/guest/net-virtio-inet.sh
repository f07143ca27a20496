#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As net-inet.sh, with network devices of virtio.
# kernels: 6.12
# tier: full
# more kernels: 6.1
# realm: no
# devices: virtio
# uses: net peer alike net-inet
# timeout: 900
set -u
inet_alike
