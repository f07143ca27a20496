#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs in the guest. pi_stress and cyclictest with eight threads on the CPUs of the realm for so many MINUTES, with hackbench in the
# realm and stress-ng in Linux. No inversion, no lost wake-up, no leak.
set -u
cd "$(mktemp -d)" || exit 1
free() { crtos stats --json | jq '.realm.pool_free_bytes'; }
before=$(free)
seconds=$((MINUTES * 60))
status=0

stress-ng --cpu 4 --vm 2 --vm-bytes 32M --fork 2 --io 2 >/dev/null 2>&1 &
linux=$!
(while :; do crtos run -- hackbench -g 2 -l 1000 || exit 1; done) >hackbench.out 2>&1 &
realm=$!
chrt -f 1 crtos run -- pi_stress --quiet --duration "$seconds" >pi_stress.out 2>&1 &
inheritance=$!
chrt -f 1 crtos run -- cyclictest -m -q -t 8 -S -p 99 -i 1000 -D "$seconds" -N -h 200000 --json=cyclictest.json >/dev/null 2>cyclictest.err
timers=$?
wait $inheritance
inheritance=$?
if ! kill -0 $realm 2>/dev/null; then
	echo "hackbench in the realm failed:"
	cat hackbench.out
	status=1
fi
kill $realm 2>/dev/null
pkill -KILL hackbench
kill $linux
wait

if [ $timers != 0 ]; then
	echo "cyclictest: exit status $timers"
	cat cyclictest.err
	status=1
fi
echo "cyclictest, ns: thread, samples, least, mean, most"
jq -r '.thread | to_entries[] | [.key, .value.cycles, .value.min, .value.avg, .value.max] | @tsv' cyclictest.json || status=1
echo "pi_stress: exit status $inheritance"
cat pi_stress.out
[ $inheritance = 0 ] || status=1

# Memory of processes that just ended comes back within a moment.
for _ in 1 2 3 4 5; do
	after=$(free)
	[ "$after" -ge "$before" ] && break
	sleep 1
done
echo "memory for processes: $before bytes before, $after after"
[ "$after" -ge "$before" ] || status=1
crtos ps
exit $status
