#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Everything at once: pi_stress and cyclictest's threads (`-S` makes them as many as Linux has CPUs)
# on two CPUs of the realm, hackbench beside them, stress-ng in Linux. No inversion, no lost
# wake-up, no leak. In virtual time: a host that is too slow for cyclictest's wake-ups would have
# nothing left for programs of lower priority. Two seconds are as many instructions as seven of real
# time are here. `./x bench soak` runs this, too; latencies, which mean nothing here, are judged by
# `./x bench soak --latencies`.
# kernels: 6.1
# realm: no
# icount: yes
# shared: yes
# timeout: 3600
# full: SOAK=180
set -u
cd "$(mktemp -d)" || exit 1
seconds=${SOAK:-2}
# From one wake-up of a thread of cyclictest to the next.
interval_us=1000
failed=0
fail() { echo "FAILED $*"; failed=1; }
# Memory that no process of the realm has.
free() { crtos stats --json | gojq '.realm.pool_free_bytes'; }
crtos up --cpus 2,3 --memory 512M || exit 1
# The first program leaves a little behind for the next ones, and what was read of the programs'
# files is kept.
crtos run -- hackbench -p -g 1 -l 10 >/dev/null || exit 1
crtos run -- cyclictest -m -q -l 10 >/dev/null || exit 1
crtos run --renumber-cpus -- pi_stress --quiet --duration 1 >/dev/null || exit 1
sleep 1
before=$(free)

stress-ng --cpu 1 --vm 1 --vm-bytes 32M --fork 1 --io 1 >/dev/null 2>&1 &
linux=$!
: >rounds
while ! [ -e over ]; do
	if crtos run -- hackbench -p -g 1 -l 200 >hackbench.out 2>&1; then
		echo >>rounds
	else
		cp hackbench.out hackbench.failed
	fi
done &
realm=$!
# raised: all threads of cyclictest have their priority.
raised() { [ "$(crtos ps --json | gojq '[.[] | select(.command == "cyclictest" and .priority == 99)] | length')" = "$(getconf _NPROCESSORS_CONF)" ]; }
# Its first thread, which creates the others, has a priority from the beginning, and pi_stress
# begins after them: neither hackbench nor pi_stress delays their creation. It ends after pi_stress,
# however long that takes to begin.
chrt -f 98 crtos run -- cyclictest -m -q -t 8 -S -p 99 -i $interval_us -N -h 200000 \
	--json=cyclictest.json >/dev/null 2>cyclictest.err &
timers=$!
await raised || { crtos ps; fail "cyclictest's threads do not begin: $(cat cyclictest.err)"; }
crtos run --renumber-cpus -- pi_stress --quiet --duration "$seconds" >pi_stress.out 2>&1 || fail 'pi_stress'
kill $timers
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
gojq -r '.thread | to_entries[] | [.key, .value.cycles, .value.min, .value.avg, .value.max] | @tsv' cyclictest.json || fail 'no report of cyclictest'
[ -z "${RESULT:-}" ] || cp cyclictest.json "$RESULT"
[ "$(gojq "[.thread[] | select(.cycles < $seconds * 990000 / $interval_us)] | length" cyclictest.json)" = 0 ] || fail 'wake-ups are missing'
if [ -n "${MOST_NS:-}" ]; then
	most=$(gojq '[.thread[].max] | max' cyclictest.json)
	[ "$most" -le "$MOST_NS" ] || fail "a wake-up was $most ns late, $MOST_NS may be"
fi

# Memory of processes that just ended comes back within a moment.
await '[ "$(free)" -ge "$before" ]' || fail 'memory is missing'
echo "memory for processes: $before bytes before, $(free) after"
[ -z "$(crtos ps | tail -n +2)" ] || { crtos ps; fail 'threads are left'; }
crtos down || fail 'down'
exit $failed
