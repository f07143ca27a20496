#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Sockets of UDP and TCP on an interface of the realm are to programs what they are under Linux:
# tests/abi/inet.c runs under Linux, and then in the realm, against a peer of Linux's at the other
# end of the wire.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: net peer alike
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
fail() { echo "FAILED $*"; }
wire && peer || exit 1
program=/usr/lib/crtos-tests/abi/inet
over_there bash -c "exec -a peer $program" &
server=$!
natively 300 $program
crtos up --cpus 3 --memory 256M --device near || { crtos log; exit 1; }
alike 400 $program || exit 1
kill $server
crtos down
