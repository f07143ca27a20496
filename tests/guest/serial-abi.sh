#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A UART of the realm is to programs what it is under Linux: tests/abi/serial.c runs under Linux,
# and then in the realm, against a UART of Linux at the other end of the wire.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# uarts: isa
# uses: alike
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
fail() { echo "FAILED $*"; }
program=/usr/lib/crtos-tests/abi/serial
natively 300 $program
crtos up --cpus 3 --memory 256M --device ttyS1 || exit 1
alike 400 $program || exit 1
crtos down || exit 1
