#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's programs that look at a network or make frames do in the realm, on an interface that the
# realm has, what they do under Linux: tcpdump, arping, Python. The other end of the wire is an
# interface of Linux. The interface is taken and given back, also when a command is killed; an
# interface of Linux that a program of the realm names stays Linux's.
# kernels: 6.12
# realm: no
# shared: yes
# devices: yes
# packages: tcpdump,arping,python3-minimal
# uses: net wiretap
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
wiretap
exit $failed
