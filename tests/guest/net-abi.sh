#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A network interface of the realm is to programs what it is under Linux: tests/abi/packet.c runs
# under Linux, and then in the realm, against an interface of Linux at the other end of the wire.
# Linux gets it back as it was.
# kernels: 6.12
# more kernels: 6.1 6.12-rt
# realm: no
# shared: yes
# devices: yes
# uses: net alike net-abi
# timeout: 900
set -u
packets_alike
