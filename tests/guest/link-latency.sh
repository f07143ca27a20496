#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A doorbell of a link, from before it is rung until the one that it is for runs: from cell to cell,
# from a cell and from Linux to the instruction behind poll of a program in the realm, and from that
# to a cell: how many instructions pass.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# shared: yes
# timeout: 900
# uses: link
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
inmate=/usr/lib/crtos/inmates/link.elf
program=$PROGRAMS/link-latency
path=/dev/crtos-shm/plant
count=200
modprobe crtos || exit 1
in_memory crtos "$program" gojq taskset chrt
echo -1 >/proc/sys/kernel/sched_rt_runtime_us

# judge WHAT MEDIAN MOST BOUND LIMIT: says what it took, in nanoseconds; fails above BOUND in the
# median, and above LIMIT at most, which has turns of other CPUs in it.
judge() {
	echo "$1: median $2 ns (most $3)"
	[ -n "$2" ] && [ "$2" -le "$4" ] || fail "$1: more than $4 ns"
	[ -n "$3" ] && [ "$3" -le "$5" ] || fail "$1: more than $5 ns at most"
}

# from_cell WHAT PEER BOUND LIMIT: the right cell rings a peer, after a rest each time.
from_cell() {
	local what=$1 bound=$3 limit=$4 line median most
	[ "$(state right)" != running ] || crtos cell stop right
	crtos cell start right $inmate --command-line "serve=$2 rounds=$count pause=300000" ||
		fail "$what: start"
	# Linux is idle meanwhile, or its turns are in each way.
	sleep 2
	await '[ "$(peer 2)" = 2 ]' 600 || fail "$what: no end"
	line=$(crtos log | grep 'link: one way' | tail -n 1)
	read -r median most < <(sed 's/.* way \([0-9]*\) .*, \([0-9]*\) at most.*/\1 \2/' <<<"$line")
	judge "$what" "$median" "$most" "$bound" "$limit"
}

crtos link create plant --peers 4 || exit 1
crtos cell create right --cpus 2 --memory 4M --link plant:2 || exit 1
crtos cell create left --cpus 1 --memory 4M --link plant:3 || exit 1
crtos cell start left $inmate || fail start
await '[ "$(peer 3)" = 1 ]' 100 || fail 'no answers'
from_cell 'cell to cell' 3 1000 4000
crtos cell destroy left
crtos up --cpus 3 --memory 256M --link plant:1 || exit 1
crtos run -- "$program" $path 1 answer $count & waiter=$!
await '[ "$(peer 1)" = 1 ]' 100 || fail 'the realm does not answer'
sleep 1
from_cell 'cell to realm' 1 1700 12000
wait $waiter
crtos run -- "$program" $path 1 answer $count & waiter=$!
await '[ "$(peer 1)" = 1 ]' 100 || fail 'the realm does not answer Linux'
sleep 1
read -r median most < <(taskset -c 1 "$program" $path 0 serve $count 1)
judge 'Linux to realm' "${median-}" "${most-}" 3100 20000
wait $waiter
crtos cell stop right
crtos cell start right $inmate || fail 'start of who answers'
await '[ "$(peer 2)" = 1 ]' 100 || fail 'the cell does not answer'
read -r median most < <(crtos run -- "$program" $path 1 serve $count 2)
judge 'realm to cell' "${median-}" "${most-}" 1500 6000
crtos cell destroy right || fail destroy
crtos down || fail down
crtos link destroy plant || fail 'the link stays'
echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
exit $failed
