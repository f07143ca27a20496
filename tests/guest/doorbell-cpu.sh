#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The realm's calls interrupt the CPU that was chosen for them, and another one while that is offline; calls go on meanwhile.
# kernels: all
# realm: no
# timeout: 300
set -u
calls=/usr/lib/crtos/bench/syscalls
failed=0
fail() { echo "FAILED $*"; failed=1; }
# taken CPU: doorbells that it took.
taken() { awk -v cpu="$1" '/crtos-doorbell/ { sum += $(2 + cpu) } END { print sum + 0 }' /proc/interrupts; }
# rings_at CPU: a program's calls interrupt that CPU, and only that one.
rings_at() {
	local cpu before after where others=0
	where=$(cat "/proc/irq/$(awk '/crtos-doorbell/ { print $1 + 0 }' /proc/interrupts)/effective_affinity_list")
	[ "$where" = "$1" ] || fail "Linux has the vector on CPU $where, not $1"
	before=$(taken "$1")
	for cpu in 0 1 2; do [ $cpu = "$1" ] || others=$((others - $(taken $cpu))); done
	crtos run -- $calls -n 50 doorbell >out || fail "calls: $(cat out)"
	after=$(taken "$1")
	for cpu in 0 1 2; do [ $cpu = "$1" ] || others=$((others + $(taken $cpu))); done
	[ $((after - before)) -ge 40 ] || fail "CPU $1 took $((after - before)) doorbells of 50 calls"
	[ $others = 0 ] || fail "other CPUs than $1 took $others doorbells"
}
online() { echo "$2" >"/sys/devices/system/cpu/cpu$1/online"; }
# refused WORDS COMMAND...: COMMAND fails and says WORDS and a remedy.
refused() {
	local words=$1; shift
	"$@" 2>err && fail "$*: not refused"
	grep -qF -- "$words" err && grep -q 'remedy: choose' err || { fail "$*"; cat err; }
}
cd "$(mktemp -d)" || exit 1

refused 'not one of Linux' crtos up --cpus 2,3 --memory 64M --doorbell-cpu 2
refused 'no such CPU' crtos up --cpus 3 --memory 64M --doorbell-cpu 99
online 1 0
refused 'offline' crtos up --cpus 3 --memory 64M --doorbell-cpu 1
online 1 1
crtos up --cpus 3 --memory 64M --doorbell-cpu 1 --dry-run | grep -q 'calls interrupt CPU 1' || fail 'dry run'

# The first CPU, if none is chosen.
crtos up --cpus 3 --memory 128M || exit 1
rings_at 0
crtos down || exit 1

# Also where interrupts are to go to other CPUs by default (irqaffinity=).
affinity=$(cat /proc/irq/default_smp_affinity)
echo 1 >/proc/irq/default_smp_affinity
crtos up --cpus 3 --memory 128M --doorbell-cpu 1 || exit 1
echo "$affinity" >/proc/irq/default_smp_affinity
rings_at 1
crtos cell create other --cpus 1 2>err && fail 'a cell took the CPU of the doorbell'
grep -q 'calls of another cell interrupt CPU 1' err || { fail 'refusal of a cell'; cat err; }

dmesg --clear
online 1 0 || fail 'CPU 1 stays'
dmesg | grep -q 'CPU 1 goes offline: the doorbell' || fail 'nothing was said of the move'
for cpu in 0 2; do
	[ "$(taken $cpu)" = 0 ] || there=$cpu
done
rings_at "${there:=0}"
online 1 1 || fail 'CPU 1 does not come back'
rings_at 1

# No call gets lost when it moves to and fro.
timeout 100 crtos run -- $calls -n 20000 doorbell >out &
for _ in 1 2 3 4 5 6; do
	online 1 0 && online 1 1 || fail 'hotplug'
done
online 2 0 && online 1 0 || fail 'only CPU 0'
wait $! || fail "calls during hotplug: $(cat out)"
rings_at 0
online 1 1 && online 2 1 || fail 'hotplug'
rings_at 1
crtos down || exit 1
grep crtos-doorbell /proc/interrupts && fail 'the interrupt is still there'
complaints | grep . && failed=1
exit $failed
