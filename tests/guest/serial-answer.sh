#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A byte of a UART of the realm interrupts the realm. How long it takes, in instructions, until a
# program has read the byte, and until it has answered by RTS; no interrupt causes an exit. A UART
# that interrupts all the time is silenced, and works by a timer.
# kernels: 6.1
# realm: no
# shared: yes
# uarts: isa
# icount: yes
# turns: short
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
# at_most NAME INSTRUCTIONS
at_most() {
	local median
	median=$(awk -v name="$1" '$1 == name { print $3 }' realm)
	[ -n "$median" ] && [ "$median" -le "$2" ] || fail "$1: $median instructions, not $2 at most"
}
exits() { crtos stats --json | gojq '.cpus[] | select(.cpu == 3) | .exits | add'; }
in_memory "$PROGRAMS/serial-answer"
# The program writes to the port of the line that the kernel drives, too, as no other one may.
crtos up --cpus 3 --memory 256M --device ttyS1 --command-line ports=2f8-2ff || exit 1
crtos log | grep -q 'ttyS1: .*, interrupts' || fail "no line: $(crtos log | grep ttyS1)"
before=$(exits)
crtos run -- "$PROGRAMS/serial-answer" 1000 >realm || fail 'no answers'
echo 'instructions from the interrupt: least, median, most'
cat realm
at_most read 2000
at_most answered 3000
# What a program causes that does nothing is some 30.
[ $(($(exits) - before)) -lt 300 ] || fail "$(($(exits) - before)) exits for 1000 interrupts"
count() { crtos stats --json | gojq '.realm.interrupts[] | select(.device == "ttyS1") | .count'; }
await '[ "$(count)" -ge 1000 ]' 100 || fail "stats: $(count) interrupts"
crtos log | grep 'ttyS1 interrupts too often' && fail 'an ordinary program has it silenced'

chrt -f 10 crtos run -- "$PROGRAMS/serial-answer" flood 20000 || fail 'bytes are lost'
crtos log | grep -q 'ttyS1 interrupts too often, and is silenced' || fail 'it is not silenced'
# The timer goes on with it.
crtos run -- "$PROGRAMS/serial-answer" flood 200 || fail 'it does not go on'
crtos log | tail -3
crtos down || fail down
exit $failed
