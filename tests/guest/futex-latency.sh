#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A wake-up at a futex in memory that both realms share, between two programs of Linux, two of the
# realm, and from one to the other: how many instructions pass. The call of a real-time thread that
# wakes Linux is too short for one that asks Linux.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# shared: yes
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
count=200
program=$PROGRAMS/futex-latency
file=/dev/shm/futex-latency
modprobe crtos || exit 1
in_memory crtos "$program" taskset gojq
echo -1 >/proc/sys/kernel/sched_rt_runtime_us

# on WHERE CPU COMMAND...: the program, in place of the shell.
on() {
	local where=$1 cpu=$2; shift 2
	if [ "$where" = realm ]; then exec crtos run -- "$program" $file "$@"
	else exec taskset -c "$cpu" "$program" $file "$@"; fi
}

# measure WHO WHOM BOUND CALL MOST: says what it took; fails above so many nanoseconds until the
# waiter runs, in the call, and in the longest call.
measure() {
	local median most call most_call waiter
	rm -f $file
	on "$2" 1 wait $count >waited & waiter=$!
	(on "$1" 2 wake $count) >woke
	wait $waiter
	read -r median most <waited || fail "$1 to $2: nothing measured"
	read -r call most_call <woke || fail "$1 to $2: no call measured"
	echo "$1 to $2: median $median ns (most $most), the call $call ($most_call)"
	[ "${median:-$(($3 + 1))}" -le "$3" ] || fail "$1 to $2: more than $3 ns"
	[ "${call:-$(($4 + 1))}" -le "$4" ] || fail "$1 to $2: the call takes more than $4 ns"
	[ "${most_call:-$(($5 + 1))}" -le "$5" ] || fail "$1 to $2: a call of more than $5 ns"
}

# While all of the four virtual CPUs are busy, a call takes four times what it takes alone: so the
# longest may take four times as long as others.
measure linux linux 60000 30000 30000
crtos up --cpus 3 --memory 256M || exit 1
measure realm realm 6000 6000 24000
measure linux realm 60000 30000 30000
# One that asked Linux would take more than that.
measure realm linux 60000 2000 8000
crtos down || fail down
echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
exit $failed
