#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The realm's calls interrupt the CPU on which their shadow waits, or the CPU that was chosen for
# them. While that one is offline they interrupt another CPU, and no call is lost.
# kernels: 6.1
# more kernels: 6.1-rt 6.12 6.12-rt
# realm: no
# shared: yes
# full: CALLS=20000
# tier: full
# timeout: 900
set -u
calls=/usr/lib/crtos/bench/syscalls
failed=0
fail() { echo "FAILED $*"; failed=1; }
# taken CPU: doorbells that it took.
taken() {
	awk -v cpu="CPU$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == cpu) column = i + 1 }
		column && /crtos-doorbell/ { sum += $column } END { print sum + 0 }' /proc/interrupts
}
# has CPU: there is a doorbell's interrupt for it.
has() {
	local irq
	for irq in $(awk '/crtos-doorbell/ { print $1 + 0 }' /proc/interrupts); do
		[ "$(cat "/proc/irq/$irq/effective_affinity_list")" = "$1" ] && return
	done
	return 1
}
# rings_at CPU [COMMAND...]: calls of a program that the command starts interrupt that CPU, and only
# that one.
rings_at() {
	local wanted=$1 cpu before after others=0
	shift
	has "$wanted" || fail "Linux has no vector on CPU $wanted"
	before=$(taken "$wanted")
	for cpu in 0 1 2; do [ $cpu = "$wanted" ] || others=$((others - $(taken $cpu))); done
	"$@" crtos run -- $calls -n 50 doorbell >out || fail "calls: $(cat out)"
	after=$(taken "$wanted")
	for cpu in 0 1 2; do [ $cpu = "$wanted" ] || others=$((others + $(taken $cpu))); done
	[ $((after - before)) -ge 40 ] || fail "CPU $wanted took $((after - before)) doorbells of 50 calls"
	[ $others = 0 ] || fail "other CPUs than $wanted took $others doorbells"
}
online() { echo "$2" >"/sys/devices/system/cpu/cpu$1/online"; }
# refused WORDS COMMAND...: COMMAND fails and says WORDS and a remedy.
refused() {
	local words=$1; shift
	"$@" 2>err && fail "$*: not refused"
	grep -qF -- "$words" err && grep -q 'remedy: choose' err || { fail "$*"; cat err; }
}
# no_call_gets_lost PROGRAMS: each of them makes calls while CPUs come and go. The last CPU that is
# left is CPU 0.
no_call_gets_lost() {
	local program programs=()
	for program in $(seq "$1"); do
		timeout 300 crtos run -- $calls -n "${CALLS:-4000}" doorbell >out.$program &
		programs+=($!)
	done
	for _ in 1 2 3 4 5 6; do
		online 1 0 && online 1 1 || fail 'hotplug'
	done
	online 2 0 && online 1 0 || fail 'only CPU 0'
	for program in "${programs[@]}"; do
		wait "$program" || fail "calls during hotplug: $(cat out.*)"
	done
	rings_at 0
	online 1 1 && online 2 1 || fail 'hotplug'
}
cd "$(mktemp -d)" || exit 1

refused 'not one of Linux' crtos up --cpus 2,3 --memory 64M --doorbell-cpu 2
refused 'no such CPU' crtos up --cpus 3 --memory 64M --doorbell-cpu 99
online 1 0
refused 'offline' crtos up --cpus 3 --memory 64M --doorbell-cpu 1
online 1 1
crtos up --cpus 3 --memory 64M --doorbell-cpu 1 --dry-run | grep -q 'calls interrupt CPU 1$' || fail 'dry run'
crtos up --cpus 3 --memory 64M --dry-run | grep -q 'calls interrupt the CPU on which their shadow waits' || fail 'dry run'

# Where the shadow waits, if no CPU is chosen.
crtos up --cpus 3 --memory 128M || exit 1
for cpu in 0 1 2; do rings_at $cpu taskset -c $cpu; done
dmesg --clear
online 1 0 || fail 'CPU 1 stays'
has 1 && fail 'CPU 1 is offline and has a vector'
dmesg | grep -q 'the doorbell' && fail 'the doorbell moved'
rings_at 2 taskset -c 2
online 1 1 || fail 'CPU 1 does not come back'
rings_at 1 taskset -c 1
# A shadow that is moved while it waits.
taskset -c 1 crtos run -- "$PROGRAMS/periodic" 1000 800 >out &
shadow=$!
await "crtos ps | grep -q ' periodic  *S'" || fail 'a program does not begin'
taskset -a -p -c 2 $shadow >/dev/null || fail 'taskset'
online 1 0 || fail 'CPU 1 stays'
kill $shadow
wait $shadow || fail "a shadow that was moved: $(cat out)"
online 1 1 || fail 'CPU 1 does not come back'
# Another cell may have the CPU.
crtos cell create other --cpus 1 --memory 4M || fail 'no cell on a CPU on which doorbells may ring'
has 1 && fail 'CPU 1 is a cell and has a vector of Linux'
rings_at 2 taskset -c 2
crtos cell destroy other || fail 'destroy'
rings_at 1 taskset -c 1
no_call_gets_lost 1
rings_at 1 taskset -c 1
crtos down || exit 1

# Two CPUs of the realm ring at once.
crtos up --cpus 2,3 --memory 128M || exit 1
for _ in 1 2; do
	timeout 250 taskset -c 0,1 crtos run -- $calls -n "${CALLS:-2000}" doorbell >out.1 &
	timeout 250 taskset -c 1 crtos run -- $calls -n "${CALLS:-2000}" doorbell >out.2 || fail "calls of two CPUs: $(cat out.2)"
	wait $! || fail "calls of two CPUs: $(cat out.1)"
done
crtos down || exit 1

# Also where interrupts are to go to other CPUs by default (irqaffinity=).
affinity=$(cat /proc/irq/default_smp_affinity)
echo 1 >/proc/irq/default_smp_affinity
crtos up --cpus 3 --memory 128M --doorbell-cpu 1 || exit 1
echo "$affinity" >/proc/irq/default_smp_affinity
for cpu in 0 1 2; do rings_at 1 taskset -c $cpu; done
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
no_call_gets_lost 1
rings_at 1
crtos down || exit 1
grep crtos-doorbell /proc/interrupts && fail 'the interrupt is still there'
complaints | grep . && failed=1
exit $failed
