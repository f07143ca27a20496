#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A CPU that is offline at the launch is under the hypervisor like all others: whoever has it wake
# up by an NMI executes code as a guest there, not below everybody.
# kernels: 6.12
# more kernels: 6.1 6.1-rt 6.12-rt
# realm: no
# shared: yes
set -u
last=$(($(getconf _NPROCESSORS_CONF) - 1))
other=$((last - 1))
cpus=/sys/devices/system/cpu
failed=0
fail() { echo "FAILED $*"; failed=1; }
online() { [ "$(cat $cpus/online)" = "$1" ] || fail "CPUs online: $(cat $cpus/online), not $1"; }
awakes() {
	local got
	got=$(attack wake "$last")
	[ "$got" = "$1" ] || fail "CPU $last: $got, not $1"
}

modprobe crtos && attacker || exit 1
dmesg --clear
echo 0 >$cpus/cpu"$last"/online || exit 1
awakes native
crtos check | grep "CPU $last: online for a moment" || fail 'crtos check says nothing'
crtos up --cpus "$other" --memory 128M --dry-run | grep "CPU $last online" || fail 'no word of it'

for _ in 1 2; do
	crtos up --cpus "$other" --memory 128M || fail up
	online "0-$((other - 1))"
	awakes guest
	awakes guest
	crtos run -- busybox true || fail run
	# Linux may use it, and so may a cell.
	echo 1 >$cpus/cpu"$last"/online || fail "CPU $last does not come online"
	[ "$(taskset -c "$last" echo there)" = there ] || fail "nothing runs on CPU $last"
	crtos cell create second --cpus "$last" --memory 4M >/dev/null || fail create
	crtos cell start second /usr/lib/crtos/inmates/latency.elf --command-line \
		'period=1000 ticks=1000000' || fail start
	crtos cell destroy second || fail destroy
	echo 0 >$cpus/cpu"$last"/online || fail "CPU $last does not go offline"
	awakes guest
	crtos down || fail down
	online "0-$other"
	awakes native
done

# No launch without a CPU that Linux cannot bring online.
state=$(awk -F: '/crtos:prepare/ { print $1 + 0 }' $cpus/hotplug/states)
echo "$state" >$cpus/cpu"$last"/hotplug/fail || fail 'no fault is injected'
crtos up --cpus "$other" --memory 128M 2>err && fail 'launched without a CPU'
grep -q "CPU $last is offline.*chcpu -e $last" err || { cat err; fail 'no remedy'; }
online "0-$other"
awakes native

# A launch that fails leaves it as it was, and so does one that is killed.
crtos cell create third --cpus "$other" --memory 4M --msr 0xc0000080:rw 2>/dev/null &&
	fail 'a cell gets EFER'
online "0-$other"
awakes native
for _ in 1 2 3 4; do
	crtos up --cpus "$other" --memory 128M >/dev/null 2>&1 &
	sleep 0.$((RANDOM % 10))
	kill -9 $! 2>/dev/null
	wait $! 2>/dev/null
	crtos down --force >/dev/null 2>&1
	await '[ "$(cat $cpus/online)" = "0-$other" ]'
	online "0-$other"
	awakes native
done

echo 1 >$cpus/cpu"$last"/online || fail "CPU $last does not come back"
online "0-$last"
rmmod attack
complaints | grep . && fail dmesg
exit $failed
