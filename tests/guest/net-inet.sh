#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Sockets of UDP and TCP on an interface of the realm are to programs what they are under Linux:
# tests/abi/inet.c runs under Linux, and then in the realm, against a peer of Linux's at the other
# end of the wire.
# kernels: 6.12
# more kernels: 6.1 6.12-rt
# realm: no
# shared: yes
# devices: yes
# uses: net peer alike net-inet
# timeout: 900
set -u
inet_alike
