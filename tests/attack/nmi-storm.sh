#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Two CPUs of Linux send NMIs to a third, which is busy in programs and in the kernel: it gets one
# at a time, as without the hypervisor, and none is kept back for ever.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# timeout: 600
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
ticks() { crtos cell shared other --length 8 --raw | od -An -tu8 | tr -d ' '; }

attacker || exit 1
# On a busy host any handler takes long.
echo 10000000000 >/sys/kernel/debug/x86/nmi_longest_ns
crtos cell create other --cpus 3 --memory 4M >/dev/null || exit 1
crtos cell start other $inmates/latency.elf --command-line 'period=2000 ticks=1000000' || exit 1
await '[ "$(ticks)" -gt 10 ]' || fail 'the cell does not tick'
dmesg --clear

# one: an NMI arrives, and only that.
one() {
	local answer
	answer=$(attack nmi 2)
	[ "$answer" = '1 1' ] || fail "$1: sent and handled $answer"
}
one 'before the storm'
for load in '--cpu 1' '--fork 1' '--pipe 1'; do
	# shellcheck disable=SC2086
	taskset -c 2 stress-ng --quiet $load &
	busy=$!
	read -r sent handled < <(attack storm 2 0 1 5000)
	kill $busy
	wait $busy
	echo "$load: $sent sent, $handled handled"
	# Those that come while one waits are one.
	[ "$handled" -ge 200 ] && [ "$handled" -le "$sent" ] || fail "$load: $sent sent, $handled handled"
	one "after $load"
	[ "$(taskset -c 2 echo there)" = there ] || fail "$load: nothing runs on CPU 2"
done

# shellcheck disable=SC2034
before=$(ticks)
await '[ "$(ticks)" -gt "$before" ]' || fail 'the cell does not tick any more'
rmmod attack
crtos cell destroy other || fail destroy
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
