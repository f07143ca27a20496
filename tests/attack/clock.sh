#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux's kernel writes what it likes into the page by which the realm's clock is led: a program
# with a period of 1 ms keeps it, its clock keeps its rate within 1000 ppm, and never goes back. In
# virtual time, which the time stamp counter shows.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# icount: yes
# turns: short
# shared: yes
# timeout: 900
# full: MS=1000
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
crtos up --cpus 2,3 --memory 256M || exit 1
attacker || exit 1

ms=${MS:-200}

# Ticks of a millisecond of the clock, as long as nobody attacks.
chrt -f 80 crtos run -- "$PROGRAMS/steady" 1000 $((2 * ms)) >before || exit 1
read -r nanoseconds ticks most _ <before
millisecond=$((ticks * 1000000 / nanoseconds))
echo "without an attack: $((most * 1000000 / millisecond)) ns between two wake-ups at most"

# strike FIELD VALUE: for so long, while the program runs twice as long.
strike() {
	local nanoseconds ticks most backwards expected
	chrt -f 80 crtos run -- "$PROGRAMS/steady" 1000 $((2 * ms)) 3 >report &
	sleep 0.2
	attack clock "$1" "$2" $ms >strikes || fail "$1 $2: no attack"
	wait $!
	read -r nanoseconds ticks most backwards <report || { fail "$1 $2: no report"; return; }
	expected=$((ticks * 1000000 / millisecond))
	echo "$1 $2, $(cat strikes) times: $((most * 1000000 / millisecond)) ns at most," \
		"clock $nanoseconds ns for $expected, back $backwards times"
	[ $((most * 10)) -le $((millisecond * 12)) ] || fail "$1 $2: a wake-up came late"
	[ "$backwards" = 0 ] || fail "$1 $2: the clock went back"
	# 1000 ppm of Linux's making, and as much of the rate before.
	local off=$((nanoseconds - expected))
	[ ${off#-} -le $((expected / 500)) ] || fail "$1 $2: rate"
}
strike step -15000000000
strike step 15000000000
strike mult 0
strike mult 4294967295
strike shift 0
strike shift 255
strike odd 0

rmmod attack
crtos down || fail down
exit $failed
