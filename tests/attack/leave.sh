#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A CPU that Linux had leave the hypervisor by itself touches all memory: no cell is made then.
# While there is a cell, none leaves.
# kernels: 6.12
# more kernels: 6.1
# realm: no
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
BUSY=-3

attacker || exit 1
crtos cell create victim --cpus 3 --memory 4M >/dev/null || exit 1
for cpu in 0 1 2; do
	got=$(attack leave $cpu)
	[ "$got" = $BUSY ] || fail "CPU $cpu leaves beside a cell: $got"
done
crtos cell destroy victim || fail destroy
got=$(attack leave 1)
[ "$got" = 0 ] || fail "CPU 1 does not leave: $got"
[ "$(taskset -c 1 echo there)" = there ] || fail 'nothing runs on CPU 1'
# On a CPU that can call the hypervisor.
taskset -c 0 crtos cell create victim --cpus 3 --memory 4M 2>err && fail 'a cell beside a CPU that has left'
grep -q 'has left the hypervisor' err || { cat err; fail 'no reason'; }
[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'CPU 3 does not come back'
# The module believes that CPU 1 is there, and Linux would not survive `crtos down`.
exit $failed
