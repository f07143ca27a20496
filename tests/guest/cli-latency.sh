#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `crtos latency` reports what real-time threads of programs do that has no worst case, where, and
# who called.
# kernels: 6.1
# more kernels: 6.12
# packages: rt-tests,python3-minimal
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
# check DESCRIPTION CONDITION-OF-JQ
check() {
	[ "$(gojq "$2" report.json)" = true ] && { echo "ok $1"; return; }
	echo "FAILED $1"
	gojq -c '.lapses[] | {command, kind, what, inside, count, at: [.frames[].function][:12]}' report.json
	failed=1
}

cat >ordinary.py <<'PYTHON'
import os
os.stat("/etc/passwd")
PYTHON
cat >memory.py <<'PYTHON'
import os
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
memory = bytearray(1 << 20)
os._exit(0)
PYTHON
cat >realtime.py <<'PYTHON'
import os
os.stat("/etc/passwd")
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
for _ in range(3):
    os.access("/etc/passwd", os.R_OK)
if os.fork() == 0:
    os.chdir("/")
    os._exit(0)
os.wait()
os._exit(5)
PYTHON

crtos latency --json --output report.json -- python3 ordinary.py || failed=1
check 'an ordinary thread has no lapses' '.lapses == []'

crtos latency --backtrace --json --output report.json -- python3 realtime.py
[ $? = 5 ] || { echo 'FAILED the status is that of the program'; failed=1; }
check 'calls of Linux, counted' '[.lapses[] | select(.kind == "remote" and .what == "access")] | map(.count) | add == 3'
check 'with a time' '[.lapses[] | select(.what == "access" and .longest_ns > 1000 and .total_ns >= .longest_ns)] | length >= 1'
check 'where' '[.lapses[] | select(.what == "access") | .frames[0]] | all((.object | test("/libc")) and (.function | test("access")))'
check 'who called' '[.lapses[] | select(.what == "access") | .frames | length > 5 and any(.function == "_PyEval_EvalFrameDefault") and any(.object | test("/python3"))] | all'
check 'down to the start' '[.lapses[] | select(.what == "access") | .frames | any((.function // "") | test("libc_start_main|_start"))] | any'
check 'of a child, too' '[.lapses[] | select(.what == "chdir" and .count == 1)] | length == 1'
check 'nothing before' 'any(.lapses[]; .what == "newfstatat" and .count > 1) | not'

crtos latency --json --output report.json -- python3 memory.py || failed=1
check 'memory' '[.lapses[] | select(.kind == "memory" and .what == "mmap")] | length >= 1'
check 'without callers' '[.lapses[] | .frames | length == 1] | all'
check 'nothing was lost' '.lost_events == 0'

# Text, on standard error; the output of the program is its own.
crtos latency -- cyclictest -q -m -p 80 -i 1000 -l 50 >out 2>err
[ $? = 0 ] && grep -q '^T: 0' out || { echo "FAILED cyclictest: $(cat out err)"; failed=1; }
cat err
grep -q '^THREAD .*WHERE$\|no real-time thread' err || { echo 'FAILED a table'; failed=1; }
# Its loop needs Linux for nothing, but the thread's start and end do.
grep -q 'remote *clock_nanosleep' err && { echo 'FAILED the loop of cyclictest'; failed=1; }

crtos latency -- ./absent 2>err
[ $? = 127 ] && grep -q 'program not found' err || { echo "FAILED no such program: $(cat err)"; failed=1; }
crtos latency --output /nowhere/x -- true 2>err && { echo 'FAILED a file that cannot be written'; failed=1; }
grep -q 'write /nowhere/x' err || { echo "FAILED the reason: $(cat err)"; failed=1; }
setpriv --reuid 65534 --regid 65534 --clear-groups crtos latency -- true 2>err &&
	{ echo 'FAILED anybody may'; failed=1; }
# Nothing is traced afterwards.
crtos trace --duration 0.1 --output after.json 2>/dev/null
[ "$(gojq '[.traceEvents[] | select(.name == "page fault")] | length' after.json)" = 0 ] || failed=1
exit $failed
