#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# All CPUs of Linux ring the realm's doorbell as fast as they can: the realm has one interrupt for
# each 3 us of it, and 8 more. A program in the realm keeps its period. In virtual time.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# icount: yes
# turns: short
# timeout: 600
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
took=100
# One in a hundred more: the time is Linux's, whose CPUs do not begin and end together.
limit=$((8 + took * 1000 / 3 * 101 / 100))

attacker || exit 1
dmesg --clear
crtos up --cpus 3 --memory 256M || exit 1
in_memory crtos "$PROGRAMS/periodic" chrt
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
flood() {
	local rings
	for _ in 1 2 3; do
		rings=$(attack flood 0 0 $took)
		echo "$rings doorbells in $took ms"
		[ "$rings" -gt $((limit / 2)) ] || fail 'that is no flood'
		[ "$rings" -le $limit ] || fail "more than $limit"
	done
}
keeps_period 5000 flood || fail 'wake-ups are late'
crtos down || fail down
rmmod attack
complaints | grep . && fail dmesg
exit $failed
