#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program in the realm keeps its period of 1 ms while Linux sends a flood of frames by the virtual
# Ethernet, and while a hostile Linux writes anything into its rings and rings all the time. Then
# the link works again.
# kernels: 6.12
# icount: yes
# turns: short
# smp: 2
# realm: no
# shared: yes
# uses: ethernet listeners
# full: COUNT=20000,FLOOD=2
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
hostile=$PROGRAMS/net-hostile
seed=${SEED:-$(date +%s)}
modprobe crtos && attacker || exit 1
in_memory crtos "$PROGRAMS/periodic" "$PROGRAMS/net-latency" "$hostile" busybox chrt gojq ip
dmesg --clear
CPUS=1 ethernet_up || exit 1
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null

listeners_begin crtos0
flood() { "$PROGRAMS/net-latency" crtos0 flood "${FLOOD:-0.5}"; }
keeps_period 5000 flood || fail 'a flood takes the period away'
listeners_end

scribble() {
	local listener
	crtos run -- "$hostile" crtos0 listen &
	listener=$!
	await 'crtos ps | grep -q net-hostile'
	attack random rings "$seed" "${COUNT:-5000}" 0 || return 1
	seed=$((seed + 1))
	kill -9 $listener
	wait $listener
	return 0
}
keeps_period 7000 scribble || fail "words in the rings take the period away (seed $seed)"
echo "$(counted rx_packets) frames of the realm came"
crtos log | grep -i 'died\|panic' && fail 'something died'

# Linux's own driver is lost by that as well, until the realm comes anew.
crtos down || fail down
CPUS=1 ethernet_up || exit 1
busybox ping -q -c 3 -W 5 10.9.0.2 >/dev/null || fail 'ping afterwards'
# The realm's kernel dies while frames go there.
"$PROGRAMS/net-latency" crtos0 flood 2 >/dev/null 2>&1 &
[ "$(attack dead)" = 0 ] || fail dead
await '[ "$(cat /sys/class/net/crtos0/carrier)" = 0 ]' 100 || fail 'a carrier without a realm'
wait
crtos down || fail down
rmmod attack
complaints | grep . && fail dmesg
exit $failed
