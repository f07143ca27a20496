#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `crtos top` shows what CPUs and threads of the realm do: how busy they are, latencies, interrupts.
# kernels: 6.1
# more kernels: 6.12
# packages: rt-tests
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
# check DESCRIPTION CONDITION-OF-JQ, of the last table
check() {
	[ "$(tail -1 top.json | gojq "$2")" = true ] && { echo "ok $1"; return; }
	echo "FAILED $1"
	cat top.json
	failed=1
}

crtos top -n 2 --delay 0.5 --json >top.json || failed=1
[ "$(wc -l <top.json)" = 2 ] || { echo "FAILED two tables: $(cat top.json)"; failed=1; }
check 'nothing runs' '.threads == [] and (.cpus | length >= 1) and all(.cpus[]; .tid == null)'
check 'nothing was traced' '.lost_events == null and .cpus[0].latency_ns == null'

crtos run -- cyclictest -q -m -p 80 -i 10000 -l 1000000 >out &
cyclic=$!
crtos run busybox sh -c 'while :; do :; done' &
busy=$!
await 'crtos ps | grep -q " 80 " && crtos ps | grep -q busybox'
crtos top --trace -n 2 --delay 2 --json >top.json || failed=1
check 'a thread that does not stop has its CPU' "[.threads[] | select(.pid == $busy) | .cpu_percent > 30] == [true]"
check 'some CPU is' '[.cpus[] | .busy_percent] | max > 30'
check 'a periodic thread is switched to' '[.threads[] | select(.priority == 80) | .switches >= 1 and .state != "X"] | any'
check 'its wake-ups have latencies' '[.cpus[] | .latency_ns] | max > 0'
check 'its timer interrupts' '[.cpus[] | .interrupts] | add > 0'
check 'page faults are counted' '[.threads[] | .page_faults] | all(. != null)'

# Plain text where there is no terminal, and no terminal's commands.
crtos top -n 1 --delay 0.5 >text || failed=1
cat text
grep -q '^CPU  *BUSY  RUNS' text && grep -q 'busybox' text && ! grep -q $'\033' text ||
	{ echo 'FAILED plain text'; failed=1; }
# A terminal has its screen back, also after Ctrl-C.
script -qec 'timeout --foreground -s INT 3 crtos top --delay 0.5' screen >/dev/null </dev/null
grep -q $'\033\[?1049h' screen && grep -q $'\033\[?25h\033\[?1049l' screen ||
	{ echo 'FAILED the terminal'; cat -v screen | tail -5; failed=1; }
kill $cyclic $busy
wait $cyclic $busy 2>/dev/null

crtos top -n 0 2>err && { echo 'FAILED no tables'; failed=1; }
crtos top --delay 0 -n 1 2>err && { echo "FAILED without a pause"; failed=1; }
setpriv --reuid 65534 --regid 65534 --clear-groups crtos top -n 1 2>err && { echo 'FAILED anybody may'; failed=1; }
exit $failed
