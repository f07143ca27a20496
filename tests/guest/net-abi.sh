#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A network interface of the realm is to programs what it is under Linux: tests/abi/packet.c runs
# under Linux, and then in the realm, against an interface of Linux at the other end of the wire.
# Linux gets it back as it was.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: net alike
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
fail() { echo "FAILED $*"; }
wire || exit 1
program=/usr/lib/crtos-tests/abi/packet
before=$(told near)
natively 300 $program
crtos up --cpus 3 --memory 256M --device near || { crtos log; exit 1; }
crtos log | grep 'near: '
[ ! -e /sys/class/net/near ] || { fail 'Linux has it still'; exit 1; }
alike 400 $program || exit 1
crtos down || exit 1
await '[ "$(cat /sys/class/net/near/carrier)" = 1 ]'
[ "$(told near)" = "$before" ] || { fail "afterwards $(told near), before $before"; exit 1; }
