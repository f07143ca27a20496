#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A CAN interface of the realm is to programs what it is under Linux: tests/abi/can.c runs under
# Linux, and then in the realm, against an interface of Linux at the other end of the bus. Linux
# gets it back as it was.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# can: yes
# uses: alike
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
fail() { echo "FAILED $*"; }
modprobe -a kvaser_pci can_raw can_bcm || exit 1
await '[ -e /sys/class/net/can1 ]' || exit 1
for name in can0 can1; do
	ip link set $name type can bitrate 500000 || exit 1
	ip link set $name up || exit 1
done
program=/usr/lib/crtos-tests/abi/can
told() { ip -json -details link show can0 | gojq -c '.[0] | [.flags, .linkinfo.info_data.bittiming]'; }
before=$(told)
natively 300 $program
crtos up --cpus 3 --memory 256M --device can0 || exit 1
crtos log | grep 'can0: '
alike 400 $program || exit 1
crtos down || exit 1
[ "$(told)" = "$before" ] || { fail "afterwards $(told), before $before"; exit 1; }
ip link set can0 down && ip link set can1 down
