#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs take all that sockets of a CAN interface can be given, or use it as fast as they can,
# while frames come. A program of the realm keeps its period of 1 ms; who is killed leaves nothing.
# kernels: 6.12
# icount: yes
# turns: short
# smp: 2
# realm: no
# shared: yes
# can: yes
# packages: can-utils
# tier: full
# timeout: 900
# uses: can
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
hostile=$PROGRAMS/can-hostile
modprobe -a kvaser_pci can_raw can_bcm crtos || exit 1
await '[ -e /sys/class/net/can1 ]' || exit 1
in_memory crtos "$PROGRAMS/periodic" "$hostile" chrt cangen candump cansend gojq
for name in can0 can1; do
	ip link set $name type can bitrate 1000000 && ip link set $name up || exit 1
done
crtos up --cpus 1 --memory 256M --device can0 || exit 1
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
dmesg --clear
free_memory() { crtos stats | grep -o 'memory for processes: .* free'; }

# holds HOW LEAST: it has at least so many, and is killed with them while frames come.
holds() {
	local got
	crtos run -- "$hostile" can0 "$1" >held &
	await 'grep -q holds held' || fail "$1: it does not begin"
	got=$(awk '{ print $2 }' held | tr -d ,)
	[ "$got" -ge "$2" ] || fail "$1: $(cat held)"
	sleep 0.3
	kill -KILL $!
	wait $! 2>/dev/null
	return 0
}
runs() { crtos run -- "$hostile" can0 "$1" || fail "$1: status $?"; }

crtos run -- "$hostile" can0 churn >/dev/null || fail churn
before=$(free_memory)
cangen can1 -g 0.3 -I 123 -L 8 &
peer=$!
# All filters are compared within one section that nothing interrupts, a socket's at a time.
keeps_period 30000 holds filters 2 || fail 'filters take the period away'
keeps_period 30000 holds sockets 30 || fail 'sockets take the period away'
keeps_period 30000 holds jobs 1 || fail 'cyclic frames take the period away'
keeps_period 30000 runs send || fail 'a program that sends takes the period away'
keeps_period 30000 runs churn || fail 'new sockets take the period away'
kill $peer
wait $peer 2>/dev/null
await '[ "$(free_memory)" = "$before" ]' || fail "memory: $before before, $(free_memory) afterwards"

# All can be had again, and works.
holds filters 2
(candump_waits; cansend can1 321#0102) &
crtos run -- timeout 20 candump -n 1 can0,321:7FF >came
grep -q '321   \[2\]  01 02' came || fail "nothing comes: $(cat came)"
wait
# The kernel's memory is used up by them, but for what must not fail.
keeps_period 30000 holds answers 10 || fail 'answers take the period away'
await '[ "$(crtos ps --json)" = "[]" ]' || fail 'the realm does not go on'
crtos down || fail down
ip link set can0 down
ip link set can1 down
complaints | grep . && fail dmesg
exit $failed
