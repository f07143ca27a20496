#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program that sleeps and wakes every millisecond causes no VM exit, however busy Linux is.
# kernels: 6.1 6.12
# timeout: 240
set -u
seconds=${SECONDS_OF_LOAD:-60}
cpu=$(crtos stats --json | python3 -c 'import json,sys; print(next(c["cpu"] for c in json.load(sys.stdin)["cpus"] if c["owner"] not in ("linux", "parked")))') || exit 1
exits() { crtos stats --json | python3 -c 'import json,sys; c=[c for c in json.load(sys.stdin)["cpus"] if c["cpu"] == int(sys.argv[1])][0]; print(sum(c["exits"].values()))' "$cpu"; }

stress-ng --quiet --cpu 0 --vm 2 --vm-bytes 64M --fork 2 --timeout $((seconds + 12)) &
load=$!
crtos run -- "$PROGRAMS/periodic" 1000 $((seconds + 8)) >count &
program=$!
# The start of the program calls Linux, for as long as the load makes it.
before=-1
for _ in 1 2 3 4; do
	sleep 1
	now=$(exits)
	[ "$now" = "$before" ] && break
	before=$now
done
sleep "$seconds"
after=$(exits)
wait $program || exit 1
wait $load
read -r count _ <count
echo "CPU $cpu: $((after - before)) exits in $seconds s; $count wake-ups in all"
[ $((after - before)) = 0 ] && [ "$count" -ge $((seconds * 1000)) ]
