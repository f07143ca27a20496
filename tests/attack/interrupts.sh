#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Interrupts that Linux has others send to a CPU of the realm. A store to the window of messages
# faults. A device whose entry of the I/O APIC names that CPU reaches it with any vector, those of
# exceptions among them: the realm reports what it did not ask for, and goes on.
# kernels: 6.1 6.12
# realm: no
# shared: yes
# timeout: 600
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
# The real-time clock, which interrupts at 1024 Hz: its pin, and its registers B and C.
pin=8
B=0xb
C=0xc
read_clock() { attack outb 0x70 "$1" >/dev/null && attack inb 0x71; }
write_clock() { attack outb 0x70 "$1" >/dev/null && attack outb 0x71 "$2" >/dev/null; }

apic=$(awk -F: '/^processor/ { cpu = $2 + 0 } /^apicid/ && cpu == 3 { print $2 + 0 }' /proc/cpuinfo)
attacker || exit 1
nmi=0x400
[ "$(attack message 2 $nmi)" -ge 1 ] || fail 'no store to the window interrupts a CPU without the hypervisor'
entry=$(attack redirect $pin)
enabled=$(read_clock $B)

crtos up --cpus 3 --memory 256M || exit 1
result=$(mktemp)
start=$(date +%s%3N)
crtos run -- "$PROGRAMS/periodic" 1000 600 >"$result" &
dmesg --clear
for cpu in 2 3; do
	answer=$(attack message $cpu $nmi)
	[ "$answer" = -14 ] || fail "a message to CPU $cpu: $answer"
done
crtos log | grep -q 'root: touches memory that it does not have' || fail 'the hypervisor does not tell'

write_clock $B $((enabled | 0x40))
for vector in {16..40} 96 128 200 {236..255}; do
	attack redirect $pin $((apic << 56 | vector)) >/dev/null || fail "vector $vector is not set"
	# The next one comes when the last one is read.
	for _ in 1 2; do
		read_clock $C >/dev/null
		sleep 0.01
	done
	[ "$(crtos run -- echo there)" = there ] || { fail "the realm does not survive vector $vector"; break; }
done
for vector in 16 17 18 19 21 30 31 96; do
	crtos log | grep -q "interrupt $vector that nobody asked for" || fail "the realm does not tell of vector $vector"
done
write_clock $B "$enabled"
attack redirect $pin "$entry" >/dev/null
read_clock $C >/dev/null

kill %1
took=$(($(date +%s%3N) - start))
wait %1
read -r wakeups _ <"$result"
echo "$wakeups wake-ups in $took ms"
[ "$wakeups" -ge $((took - 2000)) ] || fail 'the program in the realm was stopped'
rm -f "$result"
crtos down || fail down
[ "$(attack message 2 $nmi)" -ge 1 ] || fail 'Linux does not get the window back'
rmmod attack
complaints | grep . && fail dmesg
exit $failed
