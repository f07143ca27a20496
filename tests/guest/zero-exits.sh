#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program that sleeps and wakes every millisecond causes no VM exit, however busy Linux is.
# kernels: 6.1 6.12
# timeout: 600
# full: SECONDS_OF_LOAD=60
set -u
cd "$(mktemp -d)" || exit 1
seconds=${SECONDS_OF_LOAD:-20}
cpu=$(crtos stats --json | python3 -c 'import json,sys; print(next(c["cpu"] for c in json.load(sys.stdin)["cpus"] if c["owner"] not in ("linux", "parked")))') || exit 1
# The counters are noted first and looked at afterwards: under this load, that takes seconds.
exits() { python3 -c 'import json,sys; c=[c for c in json.load(open(sys.argv[2]))["cpus"] if c["cpu"] == int(sys.argv[1])][0]; print(sum(c["exits"].values()))' "$cpu" "$1"; }

stress-ng --quiet --cpu 0 --vm 2 --vm-bytes 64M --fork 2 --timeout 500 &
load=$!
crtos run -- "$PROGRAMS/periodic" 1000 500 >count &
program=$!
await "crtos ps | grep -q ' periodic  *S'" || exit 1
sleep 3
crtos stats --json >before.json
sleep "$seconds"
crtos stats --json >after.json
kill $program
wait $program || exit 1
kill $load
wait $load
read -r count _ <count
before=$(exits before.json) after=$(exits after.json)
echo "CPU $cpu: $((after - before)) exits in $seconds s; $count wake-ups in all"
[ $((after - before)) = 0 ] && [ "$count" -ge $((seconds * 1000)) ]
