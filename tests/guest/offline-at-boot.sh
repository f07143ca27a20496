#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# CPUs that Linux did not start (maxcpus=) come under the hypervisor, and stay offline otherwise.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# boot: maxcpus=2
set -u
cpus=/sys/devices/system/cpu
failed=0
fail() { echo "FAILED $*"; failed=1; }
online() { [ "$(cat $cpus/online)" = "$1" ] || fail "CPUs online: $(cat $cpus/online), not $1"; }
owners() { crtos stats --json | gojq -r '[.cpus[].owner] | join(" ")'; }

online 0-1
[ "$(cat $cpus/present)" = 0-3 ] || fail "CPUs present: $(cat $cpus/present)"
modprobe crtos && attacker || exit 1
dmesg --clear
crtos check | grep 'CPUs 2,3: online for a moment' || fail 'crtos check says nothing'
crtos up --cpus 1 --memory 128M || exit 1
online 0
[ "$(owners)" = 'linux realtime linux linux' ] || fail "owners: $(owners)"
for cpu in 2 3; do
	[ "$(attack wake $cpu)" = guest ] || fail "CPU $cpu is outside"
done
crtos run -- busybox true || fail run
echo 1 >$cpus/cpu3/online || fail 'CPU 3 does not come online'
crtos cell create second --cpus 3 --memory 4M >/dev/null || fail 'a cell with CPU 3'
crtos cell destroy second || fail destroy
online 0,3
crtos down || fail down
online 0-1,3
rmmod attack
complaints | grep . && fail dmesg
exit $failed
