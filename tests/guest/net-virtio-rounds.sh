#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A network device of virtio comes to the realm, is used and goes back, many times, also when
# programs are killed that use it and commands that take it. Afterwards Linux uses it, and complains
# of nothing.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: virtio
# uses: net
# full: ROUNDS=100
# timeout: 1500
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
rounds=${ROUNDS:-4}
RANDOM=${SEED:-5}
latency=$PROGRAMS/net-latency hostile=$PROGRAMS/net-hostile
soon() { sleep "0.$(printf %03d $((RANDOM % $1)))"; }
wire || exit 1
near=$(card_of near) far=$(card_of far)
before=$(told near)
"$latency" near far 20 >/dev/null || exit 1
dmesg -C

crtos up --cpus 3 --memory 256M --device near --device far || exit 1
for ((round = 0; round < rounds; round++)); do
	crtos run -- "$latency" near far 20 >/dev/null || fail "round $round: no frames"
	crtos run -- "$latency" far near 20 back >/dev/null || fail "round $round: none back"
	crtos run -- "$hostile" near hold >held &
	await 'grep -q holds held'
	crtos device remove "${near##*/}" 2>/dev/null && fail "round $round: taken from a program"
	kill -9 $!
	wait $!
	crtos run -- "$latency" near far 100000 >/dev/null 2>&1 &
	soon 300
	kill -9 $!
	wait $!
	crtos device remove "${near##*/}" || fail "round $round: not removed"
	crtos device add "${near##*/}" || fail "round $round: not added"
	((round % 4)) || { crtos device remove "${far##*/}" && crtos device add "${far##*/}"; } ||
		fail "round $round: the other one"
	[ $failed = 0 ] || break
done
crtos down || fail down
echo "$round rounds"

# Taken and given back as a whole, with commands that are killed.
for ((round = 0; round < (rounds + 4) / 5; round++)); do
	crtos up --cpus 3 --memory 256M --device near --device far &
	soon 999
	kill -9 $!
	wait $!
	crtos down --force >/dev/null 2>&1
	await '[ "$(cat /sys/class/net/{near,far}/carrier)" = $'"'1\n1'"' ]' ||
		fail "kill $round: Linux has not both"
	[ "$(told near)" = "$before" ] || fail "kill $round: $(told near), before $before"
	"$latency" near far 20 >/dev/null || fail "kill $round: Linux has no frames"
	[ $failed = 0 ] || break
done
echo "$round kills"
wrong='BUG|WARNING|Oops|Call Trace|DMAR:.*fault|virtio.*(fail|error|broken)|NETDEV'
# Linux says of a CPU that comes back which errata it has.
dmesg | grep -v 'AMD Zen1' | grep -iE "$wrong" && fail dmesg
crtos log | grep -E 'interrupts too often|are lost|does not receive' && fail log
exit $failed
