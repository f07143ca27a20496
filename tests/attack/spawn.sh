#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A member of the group crtos asks the module for processes by hand, as children of one that has
# files of Linux's memory mapped, and ends them, or that one, while the module makes them; a thread
# of a process executes a program and asks for what it had: nothing of Linux's is used that was
# freed. One that says that it goes on as another program does not keep the realm from its end.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# uses: member
# boot: slub_debug=FZP
# timeout: 600
# full: ROUNDS=200
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
crtos up --cpus 3 --memory 512M || exit 1
dmesg --clear
spawner=$PROGRAMS/spawner
holder="crtos run -- $spawner hold /dev/shm/pages 1500"
rounds=${ROUNDS:-8}
export LIMIT=500
# shellcheck disable=SC2086
{
	same 'processes end while they are made' "$rounds rounds" \
		"$(member "$spawner" race "$rounds" $holder)"
	same 'who executed a program is no thread' 'Invalid argument' \
		"$(member "$spawner" execute)"
	same 'a parent ends while its children are made' "$((rounds / 4)) rounds" \
		"$(member "$spawner" orphan $((rounds / 4)) $holder)"
}
same 'a program runs' there "$(there)"

# What says that it goes on in the realm is there until it is killed, and nobody waits for it.
member "$spawner" bequeath sleep 100 &
await 'grep -qxs sleep /proc/[0-9]*/comm'
sleep 2
timeout 30 crtos down 2>refused && fail 'it is not counted'
grep -q 'a program runs' refused || fail "down: $(cat refused)"
timeout 30 crtos down --force || fail 'down --force'
wait
complaints | grep . && fail dmesg
exit $failed
