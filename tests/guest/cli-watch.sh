#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `crtos watch` counts the jobs of a program's threads that come too late, tells what the CPU did
# during the worst, and writes the trace around it.
# kernels: 6.1
# more kernels: 6.12
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
# check DESCRIPTION CONDITION, of the last object
check() {
	[ "$(tail -1 watch.out | gojq "$2")" = true ] && { echo "ok $1"; return; }
	fail "$1"
	cat watch.out
}
# spins SECONDS PAUSE: a thread of a higher priority keeps the CPU so long, now and then.
cat >spins.py <<'P'
import sys, time
spin, pause = map(float, sys.argv[1:])
while True:
    end = time.monotonic() + spin
    while time.monotonic() < end:
        pass
    time.sleep(pause)
P

chrt -f 80 crtos run -- "$PROGRAMS/periodic" 10000 1000000 >/dev/null &
periodic=$!
await 'crtos ps | grep -qw periodic' || exit 1

# Nobody is in its way: no job is late by a limit that leaves room for emulation.
crtos watch --limit 1s --duration 3 --json $periodic >watch.out || fail "status $? without a miss"
[ "$(wc -l <watch.out)" -ge 2 ] || fail "no table each second: $(cat watch.out)"
check 'its jobs are counted' '.whole and (.threads | length == 1) and .threads[0].jobs > 20'
check 'it is the right thread' ".threads[0].tid == $periodic and .threads[0].command == \"periodic\""
check 'latencies are in order' '.threads[0] | .least_ns <= .mean_ns and .mean_ns <= .most_ns and .most_ns < 1e9'
check 'a response has the latency in it' '.threads[0] | .most_response_ns >= .least_ns'
check 'nothing was late' '.worst == null and .trace == null and .threads[0].misses == 0'
[ ! -e watch.json ] || fail 'a trace of nothing'

# A thread of a higher priority spins for 300 ms.
chrt -f 90 crtos run -- python3 spins.py 0.3 0.7 &
spinner=$!
await 'crtos ps | grep -q python3' || exit 1
sleep 2
crtos watch --limit 150ms --duration 5 --json --output late.json $periodic >watch.out
[ $? = 3 ] || fail 'no status of a miss'
check 'misses are counted' '.threads[0].misses > 0 and .threads[0].misses < .threads[0].jobs'
check 'the worst was late by that' '.worst.part == "latency" and .worst.ns > 1.5e8 and .worst.command == "periodic"'
check 'the spinner is named first' "(.worst.did[0].what | startswith(\"python3 ($spinner)\")) and .worst.did[0].ns > .worst.ns / 2"
check 'what was done is the whole time' '(.worst | [.did[].ns] | add) as $sum | .worst.ns == $sum'
check 'the file is named' '.trace == "late.json"'
gojq -e '[.traceEvents[] | select(.name | startswith("late: "))] | length == 1' late.json >/dev/null || fail 'the trace has no mark'
gojq -e --arg name "python3 ($spinner)" 'any(.traceEvents[]; .name == $name)' late.json >/dev/null || fail 'the trace lacks the spinner'

# A job that takes longer than it may, in words.
crtos watch --deadline 150ms --duration 3 --output long.json $spinner >watch.out 2>err
[ $? = 3 ] || fail 'a long job is none'
cat watch.out
grep -q "^the worst: python3 ($spinner) had done its job .* µs after it was ready; meanwhile CPU [0-9]* ran python3 ($spinner) for" watch.out ||
	fail 'no words'
grep -q 'the trace around the worst: long.json' err || fail "$(cat err)"

# It ends with the program.
(sleep 2; kill $periodic) &
timeout 60 crtos watch --limit 1s $periodic >watch.out
[ $? = 0 ] || fail 'it does not end with the program'
wait $periodic
kill $spinner
wait 2>/dev/null

crtos watch 1 2>err && fail 'a process of Linux'
grep -q 'more: crtos explain process-unknown' err || fail "$(cat err)"
crtos watch none 2>err
[ $? = 2 ] || fail 'no number'
setpriv --reuid 65534 --regid 65534 --clear-groups crtos watch 1 2>err && fail 'anybody may'
crtos trace --duration 0.1 --output after.json >/dev/null 2>&1 || fail 'tracing does not go on'
exit $failed
