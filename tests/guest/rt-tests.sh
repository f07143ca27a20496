#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's own rt-tests: each program first under Linux, then in the realm on two CPUs; both end
# alike and report. They run in virtual time, because they judge times, and some fail where the host
# takes the processor for a while. Those that fork are in rt-tests-forked.sh.
# kernels: 6.1
# realm: no
# icount: yes
# shared: yes
# timeout: 900
# full: ALL=yes
set -u
cd "$(mktemp -d)" || exit 1
failed=0
options=()
only=${1:-}
ABI=/usr/lib/crtos-tests/abi
crtos up --cpus 2,3 --memory 384M || exit 1
# Programs count the processors by this file, and go through affinity masks up to that count.
online=$(crtos run -- cat /sys/devices/system/cpu/online)
[ "$online" = 0-3 ] || { echo "FAILED online: $online"; failed=1; }

cpus=(2 3)

# both NAME PATTERN COMMAND...: status 0 and a line that matches PATTERN, under Linux and in the
# realm, there with `options`. FIRST and SECOND in the command are two CPUs there.
both() {
	local name=$1 pattern=$2 status where command
	shift 2
	case $name in *$only*) ;; *) return ;; esac
	in_memory "$1" || { echo "FAILED $name: no $1"; failed=1; return; }
	for where in linux realm; do
		local begin=$SECONDS
		if [ $where = linux ]; then
			command=("${@/#FIRST/0}")
			timeout 200 "${command[@]/#SECOND/1}" >$where.out 2>&1 </dev/null
		else
			command=("${@/#FIRST/${cpus[0]}}")
			timeout 200 crtos run "${options[@]}" -- "${command[@]/#SECOND/${cpus[1]}}" >$where.out 2>&1 </dev/null
		fi
		status=$?
		if [ $status = 0 ] && grep -qE -- "$pattern" $where.out; then
			echo "ok $name ($where, $((SECONDS - begin)) s): $(grep -E -- "$pattern" $where.out | tail -1)"
			continue
		fi
		if [ $where = linux ]; then
			echo "skipped $name: Linux itself does not pass, status $status"
			break
		fi
		echo "FAILED $name ($where, $((SECONDS - begin)) s): status $status, no line like $pattern:"
		tail -n 12 $where.out | cut -c1-160
		failed=1
	done
	rm -f linux.out realm.out
}

# also NAME PATTERN COMMAND...: as `both`, if all are asked for.
also() { [ -z "${ALL:-}" ] || both "$@"; }

in_memory cat bash taskset cmp getconf script
both cyclictest 'T: 0 .*C: +200 .*Max: +[0-9]' cyclictest -q -m -p 98 -i 1000 -l 200
both cyclictest-threads 'T: 3 .*C: +[0-9]+ .*Max: +[0-9]' cyclictest -q -m -p 90 -t 4 -i 1000 -d 100 -l 100
also cyclictest-affinity 'T: 1 .*Max: +[0-9]' cyclictest -q -m -p 90 -t 2 -a -i 1000 -l 100
both cyclictest-smp 'T: 0 .*Max: +[0-9]' cyclictest -q -m -S -p 90 -i 1000 -l 100
also cyclictest-policy-rr 'T: 0 .*Max: +[0-9]' cyclictest -q -p 50 --policy=rr -i 1000 -l 100
also cyclictest-policy-other 'T: 0 .*Max: +[0-9]' cyclictest -q --policy=other -i 1000 -l 100
also cyclictest-histogram '^# Max Latencies: ' cyclictest -q -m -p 98 -i 1000 -l 200 -h 400
also cyclictest-duration 'T: 0 .*Max: +[0-9]' cyclictest -q -m -p 98 -i 1000 -D 1
also cyclictest-relative 'T: 0 .*Max: +[0-9]' cyclictest -q -p 98 -r -i 1000 -l 100
also cyclictest-interval-timer 'T: 0 .*Max: +[0-9]' cyclictest -q -p 98 -s -i 1000 -l 100
also cyclictest-realtime-clock 'T: 0 .*Max: +[0-9]' cyclictest -q -p 98 -c 1 -i 1000 -l 100
also cyclictest-json 'T: 0 .*Max: +[0-9]' cyclictest -q -m -p 98 -i 1000 -l 100 --json=report.json
both cyclicdeadline 'T: 0 .*' cyclicdeadline -q -D 1 -i 10000 -s 1000 -t 1
both deadline_test '^missed deadlines' deadline_test -t 1 -i 20000 -p 20 -P 50
both hackbench-pipe '^Time: ' hackbench -p -g 2 -f 5 -l 50
also hackbench-socket '^Time: ' hackbench -g 2 -f 5 -l 50
also hackbench-threads '^Time: ' hackbench -T -p -g 2 -f 5 -l 50
both pi_stress 'Total inversion performed' pi_stress --duration=1 --quiet --inversions=-1 -g 1
both pmqtest 'Max' pmqtest -q -p 80 -i 1000 -l 100
both ptsematest 'Max' ptsematest -q -p 80 -i 1000 -l 100
also ptsematest-smp 'Max' ptsematest -q -S -p 80 -i 1000 -l 100
both sigwaittest 'Max' sigwaittest -q -p 80 -i 1000 -l 100
both svsematest 'Max' svsematest -q -p 80 -i 1000 -l 100
both signaltest 'T: 0 .*Max: +[0-9]' signaltest -q -p 80 -t 2 -l 200
# It has to have measured what it needs before its time is up: else it divides by zero.
both queuelat '^Avg loop' queuelat -m 50000000 -c 100 -p 1 -f "$(awk '/MHz/ { print int($4); exit }' /proc/cpuinfo)" -t 2
also cyclictest-posix-timers 'T: 0 .*Max: ' cyclictest -x -q -m -p 98 -i 1000 -l 200
also cyclictest-one-cpu 'T: 0 .*Max: +[0-9]' cyclictest -q -m -p 90 -t 1 -a SECOND -i 1000 -l 100
also cyclictest-main-affinity 'T: 1 .*Max: +[0-9]' cyclictest -q -m -p 90 -t 2 --mainaffinity=FIRST -i 1000 -l 100
both oslat '^ +Maximum:' oslat -C FIRST --cpu-list SECOND --duration 1
also oslat-memmove '^ +Maximum:' oslat -C FIRST --cpu-list SECOND -m 4K -w memmove --duration 1
both rt-migrate-test 'Task 2 .prio' rt-migrate-test -l 3 3

# The same CPUs by other numbers: what binds itself to CPU 0, and what counts CPUs.
options=(--renumber-cpus) cpus=(0 1)
both pip_stress 'inversion' pip_stress
both renumbered-cyclictest-smp 'T: 1 .*Max: +[0-9]' cyclictest -q -m -S -p 90 -i 1000 -l 100
also renumbered-oslat '^ +Maximum:' oslat --cpu-list SECOND --duration 1

# shown WHAT EXPECTED COMMAND...: what a program in the realm prints.
shown() {
	local what=$1 expected=$2 got
	shift 2
	got=$("$@" 2>&1)
	[ "$got" = "$expected" ] && { echo "ok $what"; return; }
	echo "FAILED $what: expected '$expected', got '$got'"
	failed=1
}
own=(crtos run --renumber-cpus --)
shown 'online, renumbered' 0-1 "${own[@]}" cat /sys/devices/system/cpu/online
shown 'possible, renumbered' 0-1 "${own[@]}" cat /sys/devices/system/cpu/possible
shown 'CPUs of the node, renumbered' 0-1 "${own[@]}" cat /sys/devices/system/node/node0/cpulist
shown 'mask of the node, renumbered' 3 "${own[@]}" cat /sys/devices/system/node/node0/cpumap
shown 'CPUs of the node' 0-3 crtos run -- cat /sys/devices/system/node/node0/cpulist
shown 'mask of the node' f crtos run -- cat /sys/devices/system/node/node0/cpumap
shown 'count, renumbered' 2 "${own[@]}" getconf _NPROCESSORS_CONF
# shellcheck disable=SC2016
"${own[@]}" bash -c 'taskset -c 1 bash -c "taskset -cp \$\$; :"' | grep -q ': 1$' || { echo 'FAILED affinity of a child, renumbered'; failed=1; }
"${own[@]}" "$ABI/cpus" 200 >renumbered && "$ABI/cpus" 200 >linux && cmp linux renumbered || { echo 'FAILED cpus, renumbered'; failed=1; }

# cyclictest for so many seconds, until Ctrl-C or a signal.
interrupted() {
	local program=(crtos run -- cyclictest -q -m -p 90 -i 1000)
	case $1 in
	Ctrl-C) { sleep "$2"; printf '\003'; sleep 2; } | timeout 200 script -qec "${program[*]}" /dev/null ;;
	*) timeout -s "$1" "$2" "${program[@]}" 2>&1 ;;
	esac
}
# When it is interrupted it tells its result.
for how in Ctrl-C TERM INT; do
	interrupted $how 2 >ended
	grep -q 'T: 0 .*C: *[1-9].* Max: ' ended && { echo "ok ended by $how"; continue; }
	echo "FAILED ended by $how:"
	tail -n 5 ended
	failed=1
done

crtos down || failed=1
exit $failed
