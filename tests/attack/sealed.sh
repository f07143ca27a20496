#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Root, and a hostile kernel by slots that it offers by hand, start programs in a locked realm,
# which end others; not in a sealed one. What runs there goes on, and starts threads, forks and
# executes.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# timeout: 600
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
cd "$(mktemp -d)" || exit 1
SPAWN=1 READY=2
STARTUP=1 EXIT=2 REFUSE=27
attacker || exit 1
# refused STATUS WORDS COMMAND...
refused() {
	local status=$1 words=$2 got
	shift 2
	timeout 60 "$@" >out 2>err
	got=$?
	[ $got = "$status" ] || fail "$*: status $got, not $status"
	grep -q "$words" err || { cat err; fail "$*: no reason"; }
}
sealed() { crtos stats --json | gojq .realm.sealed; }
# offered EXPECTED WHAT STATE PROCESS PID PARENT
offered() {
	local expected=$1 what=$2 got
	shift 2
	got=$(attack offer "$@")
	[ "$got" = "$expected" ] || fail "$what: $got, not $expected"
}
# start: a program in the realm, $family.
start() {
	crtos run -- "$PROGRAMS/family" >lines & family=$!
	await 'grep -q begins lines' || fail 'no program'
}
grows() {
	local before
	before=$(grep -c . lines)
	kill -USR2 $family
	await "[ \$(grep -c . lines) -gt $before ]" || fail 'it does not hear'
	[ "$(tail -n 1 lines)" = grew ] || fail "$1: $(tail -n 1 lines)"
}

refused 1 'crtos is not up' crtos seal
crtos up --cpus 3 --memory 256M || exit 1
refused 1 'not locked' crtos seal
crtos down || fail down

crtos up --cpus 3 --memory 256M --locked || exit 1
dmesg --clear
refused 1 'only root' setpriv --reuid 12345 --regid 12345 --groups "$(stat -c %g /dev/crtos)" crtos seal
[ "$(sealed)" = false ] || fail 'it is sealed from the start'

# Not sealed: another program of the same user ends one, or takes its CPU.
start
crtos run -- sh -c "kill -KILL $family" || fail kill
wait $family
offered $STARTUP 'a program by hand' $SPAWN 60000 99999 0
start
chrt -f 99 crtos run -- "$PROGRAMS/family" spins >spins & spinner=$!
await 'grep -q begins spins' || fail 'no spinner'
kill -USR2 $family
sleep 2
[ "$(tail -n 1 lines)" = begins ] || fail 'one of the highest priority leaves it its CPU'
kill -TERM $spinner
wait $spinner
await '[ "$(tail -n 1 lines)" = grew ]' || fail 'it does not go on'

# Sealed: it is in the log, and in the statistics.
crtos seal >members || fail seal
grep -q "^$family family\$" members || { cat members; fail 'it does not say who is there'; }
[ "$(sealed)" = true ] || fail 'the statistics do not show it'
crtos stats | grep -q 'the realm is sealed' || fail 'the table does not show it'
crtos log --kernel | grep -q sealed || fail 'the log does not show it'
crtos seal >/dev/null || fail 'it is sealed again'
for _ in $(seq 20); do
	refused 125 'the realm is sealed' crtos run -- sh -c "kill -KILL $family"
done
refused 125 'the realm is sealed' chrt -f 99 crtos run -- "$PROGRAMS/family" spins
grows 'after programs that were refused'
await '[ "$(crtos ps --json | gojq "[.[].pid] | unique | length")" = 1 ]' || { crtos ps; fail 'a slot is lost'; }

# A hostile kernel says what it likes of a new program, and of the realm.
offered $REFUSE 'a program by hand' $SPAWN 60000 99999 0
offered $REFUSE 'one with the id of a program' $SPAWN 60000 $family 0
offered $REFUSE 'one with all of its numbers' $SPAWN 2 $family 0
for slot in $(seq 8); do
	offered $EXIT "one that thread $slot has forked" $SPAWN 60000 99999 $slot
done
offered nothing 'a thread of nobody' $READY 60000 99999 0
[ "$(attack unseal)" = 0 ] || fail unseal
[ "$(sealed)" = false ] || fail 'the words are not there'
refused 125 'the realm is sealed' crtos run -- sh -c "kill -KILL $family"
grows 'after offers by hand'

# Cells beside it are as free as ever.
crtos cell create other --cpus 2 --memory 4M >/dev/null || fail create
crtos cell start other /usr/lib/crtos/inmates/prober.elf --command-line idle-count || fail start
crtos cell destroy other || fail destroy

kill -TERM $family
wait $family || fail 'it does not end well'
refused 125 'the realm is sealed' crtos run -- busybox true
crtos down || fail down

# The next realm is another one.
crtos up --cpus 3 --memory 256M --locked || fail up
[ "$(crtos run -- busybox echo there)" = there ] || fail 'the next realm takes no program'
crtos down || fail down
rmmod attack
complaints | grep . && fail dmesg
exit $failed
