#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `crtos run --strict`: the first thing without a worst case that a real-time thread does ends the
# program by SIGXCPU, or runs its handler, which is told what it was. With `error` calls of Linux
# fail instead. Who does no such thing, and ordinary threads, are left alone.
# kernels: 6.1
# more kernels: 6.12
# packages: rt-tests,python3-minimal
# shared: yes
# timeout: 400
set -u
cd "$(mktemp -d)" || exit 1
failed=0
# same WHAT EXPECTED FOUND
same() { if [ "$3" = "$2" ]; then echo "ok $1"; else echo "FAILED $1: $3, not $2"; failed=1; fi; }
# ends WHAT STATUS COMMAND...
ends() {
	local what=$1 expected=$2
	shift 2
	{ "$@" >out 2>&1; local status=$?; } 2>/dev/null
	same "$what" "$expected" $status
	[ $status = "$expected" ] || cat out
}

cat >late.py <<'PYTHON'
import os, sys
if len(sys.argv) > 1:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
os.access("/etc/passwd", os.R_OK)
PYTHON
ends 'cyclictest has no lapse' 0 crtos run --strict -- cyclictest -q -m -p 80 -i 1000 -l 100
ends 'a lapse ends a program' 152 crtos run --strict -- python3 late.py urgent
ends 'not one that is not strict' 0 crtos run -- python3 late.py urgent
ends 'no ordinary thread' 0 crtos run --strict -- python3 late.py
ends 'children as well' 152 crtos run --strict -- sh -c 'python3 late.py urgent; exit $?'
same 'Linux has no such option' 'no such option' "$("$PROGRAMS/strict")"
same 'the handler is told' "an ordinary thread: 0, 0
the start of real time: 0, 0
a call of the realm: 0, 0
a call of Linux: 1, 0xfccf0002
a page: 1, 0xfccf0003
the same page: 0, 0
a mapping: 1, 0xfccf0040
the end of real time: 0, 0" "$(crtos run -- "$PROGRAMS/strict")"

# With errors, calls of Linux fail before anything is done.
calls='access: EREMOTE, 0, 0
read: EREMOTE, 0, 0
close: EREMOTE, 0, 0
kill: EREMOTE, 0, 0
fork: EREMOTE, 0, 0
execve: EREMOTE, 0, 0
own signal: done, 0, 0
queued signal: done, 0, 0
pipe: done, 0, 0
mapping: done, 1, 0xfccf0040
ordinary: done, 0, 0'
same 'calls of Linux fail' "from the start: 2
$calls" "$(crtos run --strict=error -- "$PROGRAMS/strict" errors)"
same 'in children as well' "from the start: 2
$calls" "$(crtos run --strict=error -- sh -c "\"$PROGRAMS/strict\" errors; exit")"
same 'not without' 'from the start: 0' "$(crtos run -- "$PROGRAMS/strict" errors | head -1)"
# A page of a file that Linux has to read is told of by the signal.
ends 'what shows on the way' 152 crtos run --strict=error -- python3 late.py urgent
crtos run --strict=errors -- true 2>err && { echo 'FAILED another word'; failed=1; }
grep -q 'signal, error' err || { echo 'FAILED another word'; cat err; failed=1; }
exit $failed
