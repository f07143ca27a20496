#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# All CPUs of Linux ring the realm's doorbell as fast as they can: the realm has one interrupt for
# each 3 us of it, and 8 more. In virtual time.
# kernels: 6.1 6.12
# realm: no
# icount: yes
# timeout: 600
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
took=100
# One in a hundred more: the time is Linux's, whose CPUs do not begin and end together.
most=$((8 + took * 1000 / 3 * 101 / 100))

attacker || exit 1
dmesg --clear
crtos up --cpus 3 --memory 256M || exit 1
result=$(mktemp)
in_memory "$PROGRAMS/periodic"
crtos run -- "$PROGRAMS/periodic" 1000 1 >"$result" &
for _ in 1 2 3; do
	rings=$(attack flood 0 0 $took)
	echo "$rings doorbells in $took ms"
	[ "$rings" -gt $((most / 2)) ] || fail 'that is no flood'
	[ "$rings" -le $most ] || fail "more than $most"
done
wait
read -r wakeups least mean latest <"$result"
echo "$wakeups wake-ups, $least to $latest ns late, $mean in the mean"
[ "$wakeups" = 1000 ] || fail 'wake-ups are missing'
[ "$latest" -le 5000 ] || fail 'wake-ups are more than 5 us late'
rm -f "$result"
crtos down || fail down
rmmod attack
complaints | grep . && fail dmesg
exit $failed
