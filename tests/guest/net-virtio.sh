#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As net.sh and net-shown.sh, with network devices of virtio.
# tier: full
# kernels: 6.12
# realm: no
# shared: yes
# devices: virtio
# packages: tcpdump,arping,python3-minimal
# uses: net wiretap shown
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
wiretap
shown
exit $failed
