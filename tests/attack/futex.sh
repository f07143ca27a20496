#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of Linux make the worst of a word that the realm waits at: they wake all the time, wait
# in numbers, cut the file, kill the program at each moment, by any of its threads. Programs of the
# realm keep their periods, also one that wakes them each time, and the realm has everything back.
# kernels: 6.12
# more kernels: 6.1
# icount: yes
# turns: short
# realm: no
# shared: yes
# full: ROUNDS=400
# timeout: 1800
# uses: exchange
# A variable is that of common/exchange.sh.
# shellcheck disable=SC2154
set -u
exchange=$PROGRAMS/exchange
failed=0
fail() { echo "FAILED $*"; failed=1; }
free_memory() { crtos stats | grep -o 'memory for processes: .* free'; }

# The shell tells of each program that is killed.
exec 2>/tmp/shell
in_memory crtos "$PROGRAMS/periodic" "$exchange" busybox chrt gojq truncate
crtos up --cpus 3 --memory 256M || exit 1
crtos run -- "$exchange" $file make
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
before=$(free_memory)
dmesg --clear

# An ordinary program of the realm waits at the word, as do twenty threads of Linux.
crtos run -- "$exchange" $file flood 4 >/tmp/there 2>&1 & there=$!
"$exchange" $file flood 20 >/tmp/here 2>&1 & here=$!
says /tmp/there waiting || fail "the realm does not wait"
says /tmp/here waiting || fail "Linux does not wait"
wakes() { "$exchange" $file post 20000; }
# The instructions of three busy CPUs of Linux count in the time.
keeps_period 20000 wakes || fail 'a flood of wake-ups and waiters'
# A real-time thread wakes them in each period, and Linux wakes as fast as it can.
for _ in 1 2 3; do
	"$exchange" $file post 10000000 & poster=$!
	latest=$(crtos run -- "$exchange" $file steady 300)
	kill -9 $poster
	wait $poster
	echo "steady: $latest ns late at most"
	[ "${latest:-9999999}" -gt 20000 ] || break
done
[ "${latest:-9999999}" -le 20000 ] || fail 'who wakes Linux is late'

# The file is cut and filled again below who waits.
cut() {
	local round
	for round in {1..20}; do truncate -s 0 $file; truncate -s 8K $file; done
}
keeps_period 5000 cut || fail 'a file that is cut'
kill -9 $there $here
wait $there $here

# Killed at each moment, by one of its threads.
fresh
for ((round = 0; round < ${ROUNDS:-15}; round++)); do
	crtos run -- "$exchange" $file flood 2 >/tmp/there 2>&1 & there=$!
	sleep 0.$((RANDOM % 10))$((RANDOM % 10))
	"$exchange" $file post 3
	threads=("/proc/$there/task/"*)
	kill -9 "${threads[RANDOM % ${#threads[@]}]##*/}"
	wait $there
	[ ! -d /proc/$there ] || fail "round $round: pid $there is there"
done
# Who is left gets what is posted.
fresh
crtos run -- "$exchange" $file wait >/tmp/there 2>&1 & there=$!
says /tmp/there waiting && "$exchange" $file post 1
wait $there || fail 'a waiter after all'
rm -f $file
await '[ "$(free_memory)" = "$before" ]' 600 || fail "memory: $before, then $(free_memory)"
crtos ps
crtos run -- busybox true || fail 'the realm does not go on'
crtos down || fail 'the realm does not end'
complaints | grep . && fail 'Linux complains'
exit $failed
