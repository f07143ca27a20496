#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux shows an interface while the realm has its card, as it was: programs find it by netlink, by
# ioctls and in /sys, under Linux and in the realm. Linux sends nothing by it, to itself neither;
# and root does nothing to it by which it could not be given back.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# packages: tcpdump,ethtool,python3-minimal
# uses: net shown
# tier: full
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
wire || exit 1
shown
exit $failed
