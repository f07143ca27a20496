#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Interrupts that Linux sends to a CPU of the realm, or has others send. Commands of its local APICs
# have no effect there, and a store to the window of messages faults. An entry of the I/O APIC that
# names that CPU, or could take any CPU away, is masked; a timer sends no such message. The message
# of a device reaches it with any vector, those of exceptions among them: the realm reports what it
# did not ask for, and goes on.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# timeout: 600
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
# The real-time clock, which interrupts at 1024 Hz: its pin, and its registers B and C.
pin=8
# The last ones of the I/O APIC and of the timer, which nobody uses.
last_pin=23
comparator=2
B=0xb
C=0xc
read_clock() { attack outb 0x70 "$1" >/dev/null && attack inb 0x71; }
write_clock() { attack outb 0x70 "$1" >/dev/null && attack outb 0x71 "$2" >/dev/null; }

# redirect ENTRY [OFFSET]
redirect() { attack redirect $pin "$1" "${2:-0}" >/dev/null; }
# is_masked ENTRY
is_masked() { (($1 >> 16 & 1)); }
# refused ENTRY [OFFSET]: tries it.
refused() {
	redirect "$@"
	is_masked "$(attack redirect $pin)" || fail "an entry is accepted: $(printf %#x "$1")"
}
# interrupt: by the clock
interrupt() {
	# The next one comes when the last one is read.
	for _ in 1 2 3; do
		read_clock $C >/dev/null
		sleep 0.01
	done
}

apic=$(apic_id 3)
attacker || exit 1
nmi=0x400
[ "$(attack message 2 $nmi)" -ge 1 ] || fail 'no store to the window interrupts a CPU without the hypervisor'
entry=$(attack redirect $pin)
enabled=$(read_clock $B)
attack message 3 $nmi >/dev/null
before=$(nmi_count 3)
attack device 3 $nmi >/dev/null || fail 'no device sends a message'
handles_nmi 3 "$before" || fail 'no message of a device interrupts a CPU'
before=$(nmi_count 3)
write_clock $B $((enabled | 0x40))
redirect $((apic << 56 | nmi))
interrupt
handles_nmi 3 "$before" || fail 'no entry of the I/O APIC interrupts a CPU'

before=$(nmi_count 3)
window=$((0xfee00000 | apic << 12))
[ "$(attack timer $comparator $window $nmi)" = 1 ] || fail 'no timer sends messages'
handles_nmi 3 "$before" || fail 'no message of a timer interrupts a CPU'

# Linux has these wait for ever. The hypervisor meets them when it takes the CPU.
for vector in {1..31}; do
	attack device 3 "$vector" >/dev/null || fail "vector $vector is not sent"
done
# CPU 3 is in entries and in a message when it becomes the realm's.
last_entry=$(attack redirect $last_pin)
attack redirect $last_pin $((apic << 56 | 96)) 0 >/dev/null
attack aim $comparator $window 96 >/dev/null
[ "$(attack timer $comparator)" = 1 ] || fail 'a timer that waits may send no message'
crtos up --cpus 3 --memory 256M || exit 1
for which in $pin $last_pin; do
	is_masked "$(attack redirect "$which")" || fail "entry $which names a CPU of the realm"
done
[ "$(attack timer $comparator)" = 0 ] || fail 'a timer names a CPU of the realm'
starts_waking
dmesg --clear
for cpu in 2 3; do
	answer=$(attack message $cpu $nmi)
	[ "$answer" = -14 ] || fail "a message to CPU $cpu: $answer"
done
crtos log | grep -q 'root: touches memory that it does not have' || fail 'the hypervisor does not tell'

# Fixed, to the one of the lowest priority, SMI, NMI, INIT and its end, start-up. Who carries one of
# the last four out has the CPU exit by an NMI.
before=$(nmi_exits 3)
for command in 0x4061 0x4162 0x4200 0x4400 0xc500 0x8500 0x4608; do
	answer=$(attack wrmsr 0 0x830 $((apic << 32 | command)))
	[ "$answer" = 0 ] || fail "command $command: $answer"
	[ "$(there)" = there ] || { fail "the realm does not survive command $command"; break; }
done
[ "$(nmi_exits 3)" = "$before" ] || fail "a command reaches CPU 3: $before exits before, $(nmi_exits 3) after"
for vector in 97 98; do
	crtos log | grep -q "interrupt $vector that" && fail "a command with vector $vector reaches CPU 3"
done

to=$((apic << 56))
logical=$((1 << apic << 56 | 1 << 11))
everybody=$((0xff << 56))
# Its number alone, where the rest of the entry interrupts a CPU of Linux.
attack redirect $last_pin 96 0 >/dev/null
attack upper $last_pin $((apic << 24)) >/dev/null
is_masked "$(attack redirect $last_pin)" || fail 'half an entry is accepted'
attack redirect $last_pin "$last_entry" 0 >/dev/null
# In turn: vectors, those of exceptions and of the local APIC's own interrupts among them; each
# mode of delivery; other ways to name the CPU. What takes a CPU away is refused for each CPU.
for vector in {16..40} 96 128 200 {236..255}; do
	refused $((to | vector))
	refused $((logical | vector))
done
for mode in {0..7}; do
	mode=$((mode << 8 | 96))
	tried+=($((to | mode)) $((logical | mode)) $((everybody | mode)))
done
tried+=($((0x200)) $((0x500)) $((0x600)))
for value in "${tried[@]}"; do
	refused "$value"
	interrupt
done
# Chips repeat the registers throughout the page.
for offset in 256 3840; do
	refused $((to | 96)) $offset
	interrupt
done
[ "$(there)" = there ] || fail 'the realm does not survive'
crtos log | grep 'interrupt .* that nobody asked for' && fail 'an interrupt comes through'
crtos log | grep -q 'entry of an I/O APIC refused' || fail 'the hypervisor does not tell of entries'
# A message to that CPU by its number, by its bit, to all; to take one of Linux away; stores to
# memory.
for address in $window $((0xfee00004 | 1 << apic << 12)) $((0xfeeff000)); do
	for data in 16 96 $nmi; do
		[ "$(attack timer $comparator "$address" $data)" = 0 ] || fail "a timer sends $data to $address"
	done
done
for data in $((0x200)) $((0x500)) $((0x600)); do
	[ "$(attack timer $comparator $((0xfee00000)) $data)" = 0 ] || fail "a timer sends $data to CPU 0"
done
for address in 4096 $((0xfef00000)); do
	[ "$(attack timer $comparator $address 96)" = 0 ] || fail "a timer stores to $address"
done
# By instructions that no driver of Linux uses there, and by halves of words.
attack aim $comparator "$window" 96 >/dev/null
configuration=$((0xfed00100 + 0x20 * comparator))
for place in $configuration $((0xfec00010)); do
	for kind in byte word movnti xchg or and add bts; do
		answer=$(attack store $kind $place 0x4000)
		[ "$answer" = -14 ] || fail "$kind at $place: $answer"
	done
	for kind in long quad; do
		answer=$(attack store $kind $((place - 1)) 0x400000)
		[ "$answer" = -14 ] || fail "$kind before $place: $answer"
	done
done
[ "$(attack store quad $configuration 0x4000)" = 0 ] || fail 'a store of 64 bits faults'
[ "$(attack timer $comparator)" = 0 ] || fail 'a timer may send to a CPU of the realm'
# Sends none, but says whose NMIs are expected.
attack message 0 $nmi >/dev/null
[ "$(attack timer $comparator $((0xfee00000)) $nmi)" = 1 ] || fail 'no timer sends a message to CPU 0'
crtos log | grep 'interrupt .* that nobody asked for' && fail 'an interrupt of a timer comes through'
crtos log | grep -q 'message of a timer refused' || fail 'the hypervisor does not tell of messages'
write_clock $B "$enabled"
redirect "$entry"
[ "$(attack redirect $pin)" = "$entry" ] || fail 'the entry of Linux is refused'
read_clock $C >/dev/null

for vector in {16..40} 96 128 200 {236..255}; do
	attack device 3 "$vector" >/dev/null || fail "vector $vector is not sent"
	[ "$(there)" = there ] || { fail "the realm does not survive vector $vector"; break; }
done
for vector in 16 17 18 19 21 30 31 96; do
	crtos log | grep -q "interrupt $vector that nobody asked for" || fail "the realm does not tell of vector $vector"
done

wakes_on
crtos down || fail down
[ "$(attack message 2 $nmi)" -ge 1 ] || fail 'Linux does not get the window back'
attack message 3 $nmi >/dev/null
redirect "$to"
is_masked "$(attack redirect $pin)" && fail 'Linux does not get the I/O APIC back'
[ "$(attack timer $comparator $window $nmi)" = 1 ] || fail 'Linux does not get the timer back'
redirect "$entry"
rmmod attack
complaints | grep . && fail dmesg
exit $failed
