#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A hostile cell executes random instructions with all its rights: exceptions of its own, or its
# end, are all that follows. The realm beside it and Linux go on. The seed comes with each failure,
# and `SEED=N` has it again. Most pieces are such that the cell survives them, so that there are
# many; one of STOPS may be anything.
# kernels: 6.1 6.12
# realm: no
# shared: yes
# timeout: 10800
# tier: full
# full: COUNT=2500000 STOPS=100000
set -u
cd "$(mktemp -d)" || exit 1
inmates=/usr/lib/crtos/inmates
left=${COUNT:-20000}
stops=${STOPS:-4000}
seed=${SEED:-$(date +%s)}
failed=0
fail() { echo "FAILED $* (seed $seed)"; failed=1; }
# The first words of the block that the cell shares with Linux: pieces, those that the timer ended,
# and whether all have been executed.
words() { crtos cell shared hostile --offset 0 --length 24 --raw | od -An -tu8 -w24; }
# is_count NUMBER: one of pieces that the cell can have come to.
is_count() { [ ${#1} -le 6 ] && [ "$1" -le "$count" ]; }
# A cell that halts with interrupts off, or loops so, does no harm: it is stopped. So is one that
# counts beyond its end: its program, which it may have written to, executes a part of itself for
# ever. Few processes look: beside a loop, the emulator gives Linux a tenth of the time.
ended() {
	local before=$pieces
	read -r pieces _ complete < <(words)
	[ "$complete" = 1 ] && return
	is_count "$pieces" || return 0
	[ "$pieces" = "$before" ] || stuck=0
	stuck=$((stuck + 1))
	[ $stuck -gt 10 ]
}

echo "seed $seed, $left pieces"
crtos up --cpus 3 --memory 384M || exit 1
dmesg --clear
crtos run -- "$PROGRAMS/periodic" 1000 1000000 >ticks &
program=$!
await 'crtos ps | grep -qw $program' || fail 'no program'
crtos cell create hostile --cpus 2 --memory 8M >/dev/null || fail create
all=0 timed_out=0 failures=0 halts=0 starts=0 spoilt=0
while [ "$left" -gt 0 ] && [ $failed = 0 ]; do
	wide=
	[ $((starts % 8)) = 7 ] && wide=wide
	# So many that it ends while we wait for it.
	count=$((left < 100000 ? left : 100000))
	crtos cell start hostile $inmates/random.elf \
		--command-line "seed=$seed count=$count stops=$stops $wide" || fail start
	starts=$((starts + 1)) pieces=none complete=0 stuck=0
	await ended || fail 'the cell does not end'
	case $(state hostile) in
	failed) failures=$((failures + 1)) ;;
	running) [ "$complete" = 1 ] || halts=$((halts + 1)) ;;
	*) fail "the cell is $(state hostile)" ;;
	esac
	crtos cell stop hostile || fail stop
	read -r pieces late _ < <(words)
	# It may have written anything there: then its pieces are not counted.
	if is_count "$pieces" && is_count "$late"; then
		all=$((all + pieces)) left=$((left - pieces)) timed_out=$((timed_out + late))
	else
		spoilt=$((spoilt + 1))
	fi
	seed=$((seed + 1))
	# It takes hours: who waits looks into the log of the console.
	echo "instructions: start $starts, $left pieces left" >/dev/console
	goes_on $program "start $starts"
done
summary="$all pieces, $timed_out timed out; $starts starts: stopped $failures, halted $halts"
echo "$summary, spoilt counts $spoilt" | tee /dev/console
crtos log | grep -c 'hostile: stopped'
crtos cell destroy hostile || fail destroy
kill -TERM $program
wait $program || fail 'the program fails'
read -r wakeups _ <ticks
[ "${wakeups:-0}" -gt 100 ] || fail 'the program did not wake'
crtos log | grep -i 'died\|panic' && fail 'something died'
crtos down --force || fail down
[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'CPUs online'
complaints | grep . && fail dmesg
exit $failed
