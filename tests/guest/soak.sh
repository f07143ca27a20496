#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Everything at once: pi_stress and cyclictest's threads (`-S` makes them as many as Linux has CPUs) on two CPUs of the realm, hackbench beside
# them, stress-ng in Linux. No inversion, no lost wake-up, no leak. `./x bench soak` runs this in virtual time; latencies, which mean nothing
# here, are judged by `./x bench soak --latencies`.
# kernels: 6.1
# realm: no
# packages: rt-tests
# timeout: 1800
# full: SOAK=600
set -u
cd "$(mktemp -d)" || exit 1
seconds=${SOAK:-10}
failed=0
fail() { echo "FAILED $*"; failed=1; }
# Memory that no process of the realm has.
free() { crtos stats --json | jq '.realm.pool_free_bytes'; }
crtos up --cpus 2,3 --memory 512M || exit 1
# The first program leaves a little behind for the next ones, and what was read of the programs' files is kept.
crtos run -- hackbench -p -g 1 -l 10 >/dev/null || exit 1
crtos run -- cyclictest -m -q -l 10 >/dev/null || exit 1
crtos run --renumber-cpus -- pi_stress --quiet --duration 1 >/dev/null || exit 1
sleep 1
before=$(free)

stress-ng --cpu 1 --vm 1 --vm-bytes 32M --fork 1 --io 1 >/dev/null 2>&1 &
linux=$!
: >rounds
while ! [ -e over ]; do
	if crtos run -- hackbench -p -g 1 -l 200 >hackbench.out 2>&1; then echo >>rounds; else cp hackbench.out hackbench.failed; fi
done &
realm=$!
# First, for its threads begin at ordinary priority, and pi_stress leaves nothing to those.
crtos run -- cyclictest -m -q -t 8 -S -p 99 -i 1000 -D "$seconds" -N -h 200000 --json=cyclictest.json >/dev/null 2>cyclictest.err &
timers=$! begin=$SECONDS
sleep 3
raised() { crtos ps --json | jq '[.[] | select(.command == "cyclictest" and .priority == 99)] | length'; }
until [ "$(raised)" -ge "$(getconf _NPROCESSORS_CONF)" ] || [ $((SECONDS - begin)) -ge "$seconds" ]; do sleep 0.5; done
crtos run --renumber-cpus -- pi_stress --quiet --duration "$seconds" >pi_stress.out 2>&1 || fail 'pi_stress'
wait $timers || fail "cyclictest: $(cat cyclictest.err)"
cat pi_stress.out
grep -q '^Total inversion performed: [1-9]' pi_stress.out || fail 'no inversion was performed'
touch over
wait $realm
kill $linux
wait

[ ! -e hackbench.failed ] || fail "hackbench: $(cat hackbench.failed)"
[ -s rounds ] || fail 'hackbench did not come to an end'
echo "hackbench: $(wc -l <rounds) rounds"
echo 'cyclictest, ns: thread, samples, least, mean, most'
jq -r '.thread | to_entries[] | [.key, .value.cycles, .value.min, .value.avg, .value.max] | @tsv' cyclictest.json || fail 'no report of cyclictest'
[ -z "${RESULT:-}" ] || cp cyclictest.json "$RESULT"
[ "$(jq '[.thread[] | select(.cycles == 0)] | length' cyclictest.json)" = 0 ] || fail 'a thread of cyclictest never woke'
if [ -n "${MOST_NS:-}" ]; then
	most=$(jq '[.thread[].max] | max' cyclictest.json)
	[ "$most" -le "$MOST_NS" ] || fail "a wake-up was $most ns late, $MOST_NS may be"
	[ "$(jq "[.thread[] | select(.cycles < $seconds * 990 - 1000)] | length" cyclictest.json)" = 0 ] || fail 'wake-ups are missing'
fi

# Memory of processes that just ended comes back within a moment.
for _ in {1..120}; do
	after=$(free)
	[ "$after" -ge "$before" ] && break
	sleep 0.5
done
echo "memory for processes: $before bytes before, $after after"
[ "$after" -ge "$before" ] || fail 'memory is missing'
[ -z "$(crtos ps | tail -n +2)" ] || { crtos ps; fail 'threads are left'; }
crtos down || fail 'down'
exit $failed
