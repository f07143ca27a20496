#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program that sleeps and wakes every millisecond causes no VM exit, however busy Linux is.
# kernels: 6.12
# more kernels: 6.1
# shared: yes
# timeout: 1200
# full: SECONDS_OF_LOAD=60
set -u
cd "$(mktemp -d)" || exit 1
seconds=${SECONDS_OF_LOAD:-8}
wakeups=$((seconds * 1000))
cpu=$(crtos stats --json | gojq '[.cpus[] | select(.owner != "linux" and .owner != "parked") | .cpu] | .[0] // halt_error') || exit 1
# The counters are noted first and looked at afterwards: under this load, that takes seconds.
exits() { gojq --argjson cpu "$cpu" '.cpus[] | select(.cpu == $cpu) | .exits | add' "$1"; }

stress-ng --quiet --cpu 0 --vm 2 --vm-bytes 64M --fork 2 --timeout 1000 &
load=$!
# A busy host may need longer for as many wake-ups.
for times in 1 3 9; do
	crtos run -- "$PROGRAMS/periodic" 1000 900 >count &
	program=$!
	await "crtos ps | grep -q ' periodic  *S'" || exit 1
	# It has begun when nothing exits any more for a second.
	await 'crtos stats --json >first.json; sleep 1; crtos stats --json >before.json; [ "$(exits first.json)" = "$(exits before.json)" ]' || exit 1
	sleep $((seconds * times))
	crtos stats --json >after.json
	kill $program
	wait $program || exit 1
	read -r count _ <count
	before=$(exits before.json) after=$(exits after.json)
	echo "CPU $cpu: $((after - before)) exits in $((seconds * times)) s; $count wake-ups in all"
	[ $((after - before)) = 0 ] || exit 1
	[ "$count" -lt $wakeups ] || break
done
kill $load
wait $load
[ "$count" -ge $wakeups ]
