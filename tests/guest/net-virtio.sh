#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As net.sh, with network devices of virtio.
# kernels: 6.12
# realm: no
# devices: virtio
# packages: tcpdump,arping,python3-minimal
# uses: net net-use
# timeout: 600
set -u
drive_by_sockets
