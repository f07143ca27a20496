#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A trace is JSON with everything that happened, on Linux's monotonic clock; nothing is traced
# before and afterwards.
# kernels: 6.1
# more kernels: 6.12
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
# check DESCRIPTION CONDITION-OF-JQ FILE
check() {
	[ "$(gojq "$2" "$3")" = true ] && { echo "ok $1"; return; }
	echo "FAILED $1"
	failed=1
}

read -r before _ </proc/uptime
crtos trace --output t.json -- chrt -f 80 crtos run -- "$PROGRAMS/periodic" 10000 3 >out 2>err || { cat err; exit 1; }
read -r after _ </proc/uptime
cat err
check 'a list of events' '.traceEvents | length > 200' t.json
check 'the clock is named' '.otherData.clock == "CLOCK_MONOTONIC"' t.json
check 'times are those of Linux' "[.traceEvents[] | select(.ts) | .ts / 1e6] | min > $before - 1 and max < $after + 1" t.json
check 'sleeps that last' '[.traceEvents[] | select(.name == "clock_nanosleep" and .dur > 1000)] | length > 20' t.json
check 'calls in Linux' '[.traceEvents[] | select(.name == "Linux: write")] | length > 0' t.json
check 'calls have results' '[.traceEvents[] | select(.name == "write") | .args.result | tonumber > 0] | any' t.json
check 'wake-ups by name' '[.traceEvents[] | select(.name == "wake periodic" and .args.priority == "80")] | length > 50' t.json
check 'interrupts' '[.traceEvents[] | select(.name == "interrupt of the timer")] | length > 50' t.json
check 'what a CPU ran' '[.traceEvents[] | select(.ph == "X" and (.name | startswith("periodic (")))] | length > 50' t.json
check 'names of rows' '[.traceEvents[] | select(.ph == "M") | .args.name] | contains(["CPUs of the realm", "periodic"])' t.json

crtos trace --duration 0.2 --output quiet.json 2>err || { cat err; exit 1; }
check 'a trace of nothing is one, too' '.traceEvents | type == "array"' quiet.json
# A busy host may need longer until the program has begun.
for seconds in 2 20 200; do
	crtos trace --duration $seconds --output - -- crtos run busybox sh -c 'exit 3' >status.json 2>err
	[ $? = 3 ] || { echo "FAILED the status is the command's"; failed=1; }
	[ "$(gojq '.traceEvents | length > 10' status.json)" = true ] && break
done
check 'to standard output' '.traceEvents | length > 10' status.json
# Around a late wake-up: some are later than a nanosecond, none than ten seconds.
chrt -f 80 crtos run -- "$PROGRAMS/periodic" 10000 1000000 >out &
program=$!
await 'crtos ps | grep -q " periodic "'
crtos trace --when-later-than 1ns --duration 100 --output late.json 2>err || { cat err; failed=1; }
cat err
kill $program
wait $program
grep -q 'periodic ([0-9]*) ran [0-9.]* µs after it was ready' err || { echo 'FAILED which thread'; failed=1; }
check 'one slice for it' '[.traceEvents[] | select(.name | startswith("late: "))] | length == 1 and .[0].dur > 0' late.json
check 'the wake-up before it' '(.traceEvents[] | select(.name | startswith("late: ")) | .ts) as $late
	| [.traceEvents[] | select(.name == "wake periodic" and (.ts - $late | fabs) < 0.01)] | length >= 1' late.json
check 'not all of it' '[.traceEvents[] | .ts // empty] | max - min < 2e6' late.json
crtos trace --when-later-than 10s --duration 0.5 --output none.json 2>err
[ $? = 1 ] && [ ! -e none.json ] || { echo "FAILED a trace of nothing late: $(cat err)"; failed=1; }
grep -q 'no thread was later than 10s' err || { echo "FAILED it says so: $(cat err)"; failed=1; }
# Who may not is told so, and no file is made.
groupadd --system crtos 2>/dev/null; chgrp crtos /dev/crtos; chmod 660 /dev/crtos; chmod 755 .
setpriv --reuid 65534 --regid 65534 --groups "$(getent group crtos | cut -d: -f3)" \
	crtos trace -d 0.1 2>err && { echo 'FAILED a member of the group traces'; failed=1; }
grep -q 'only root may' err || { echo "FAILED who may: $(cat err)"; failed=1; }
crtos trace --output /nowhere/x 2>err && { echo "FAILED a file that cannot be written"; failed=1; }
grep -q 'write /nowhere/x' err || { echo "FAILED the reason: $(cat err)"; failed=1; }
exit $failed
