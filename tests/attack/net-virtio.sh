#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As net.sh, with network devices of virtio.
# kernels: 6.12
# icount: yes
# turns: short
# smp: 2
# realm: no
# devices: virtio
# uses: net hostile-net listeners
# tier: full
# full: FLOOD=2
# timeout: 900
set -u
attack_by_frames
