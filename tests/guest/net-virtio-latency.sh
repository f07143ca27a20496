#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As net-latency.sh, with network devices of virtio.
# kernels: 6.12
# tier: full
# icount: yes
# turns: short
# realm: no
# devices: virtio
# uses: net net-latency
# timeout: 900
set -u
frames_take
