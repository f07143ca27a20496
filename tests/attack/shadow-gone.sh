#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux kills and stops the shadows of a locked realm's programs, and tells the realm of signals
# that they never got: they go on, and end when a program of the realm ends them.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
set -u
attacker || exit 1
crtos up --cpus 3 --memory 256M --command-line locked || exit 1
free_memory() { crtos stats | grep -o 'memory for processes: .* free'; }

# start ARGUMENT...: a victim in the realm, $victim, whose lines the file $lines gets from another
# process of the realm.
count=0
start() {
	count=$((count + 1)) lines=/tmp/lines-$count
	mkfifo "/tmp/pid-$count"
	crtos run -- sh -c "sh -c 'echo \$\$ >/tmp/pid-$count; exec $PROGRAMS/victim $*' | cat" >"$lines" &
	read -r victim <"/tmp/pid-$count"
	await '[ "$(wc -l <"$lines")" -gt 3 ]'
}
last() { tail -n 1 "$lines"; }
# goes_on: the victim writes further lines.
goes_on() { local now; now=$(wc -l <"$lines"); await "[ \$(wc -l <$lines) -gt $((now + 5)) ]"; }
# ends: a program of the realm kills the victim, and the one that reads its lines ends.
ends() {
	crtos run -- sh -c "kill -9 $victim" && wait -n && ! crtos ps | grep -qw "$victim"
}

# A pipe that has become Linux's is out of reach for a program without its shadow.
crtos run -- "$PROGRAMS/left-alone" >/tmp/lines-0 & program=$!
await '[ -s /tmp/lines-0 ]'
kill -KILL "$(head -n 1 /tmp/lines-0)"
wait $program
[ "$(tail -n 1 /tmp/lines-0)" = EIO ] || { echo "of a pipe that left: $(cat /tmp/lines-0)"; exit 1; }

# Files that are kept in memory are there from now on.
start
ends || exit 1
before=$(free_memory)

for signal in KILL TERM USR1 SEGV; do
	start
	kill -$signal "$victim"
	await '[[ $(last) = *alone* ]]' || { echo "after SIG$signal: $(last)"; exit 1; }
	goes_on || { echo "SIG$signal has ended it"; exit 1; }
	ends || { echo "it does not end after SIG$signal"; exit 1; }
done

start alone
kill -STOP "$victim"
goes_on || { echo 'SIGSTOP has stopped it'; exit 1; }
kill -CONT "$victim"
kill -TSTP "$victim"
goes_on || { echo 'SIGTSTP has stopped it'; exit 1; }
kill -CONT "$victim"
# What Linux's kernel makes up.
for signal in 1 2 9 15; do
	[ "$(attack signal "$victim" $signal)" -ge 1 ] || { echo "no forged signal $signal"; exit 1; }
	goes_on || { echo "a forged signal $signal has ended it"; exit 1; }
done
kill -USR2 "$victim"
await '[[ $(last) = *" 1" ]]' || { echo "its handler has not run: $(last)"; exit 1; }
ends || { echo 'it does not end'; exit 1; }

await '[ "$(free_memory)" = "$before" ]' ||
	{ echo "before: $before; after: $(free_memory)"; exit 1; }
crtos down || exit 1
rmmod attack
rm /tmp/pid-* /tmp/lines-*
