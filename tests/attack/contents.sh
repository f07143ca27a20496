#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What a cell left in its private memory: who loads a program of their own into the cell does not
# find it, neither by the commands nor by calling the hypervisor.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# timeout: 600
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
# cleared N: whether the N programs that ran until now all found clear memory.
words() { crtos log | grep -o 'victim: prober: [0-9]* words were not clear'; }
cleared() { [ "$(words | grep -c ': 0 words')" = "$1" ]; }
LOAD=4 START=5 STOP=6 RECLAIM=7 BUSY=-3 INVALID=-1

attacker || exit 1
dmesg --clear
crtos cell create victim --cpus 3 --memory 16M >/dev/null || exit 1
crtos cell start victim $inmates/prober.elf --command-line fill || fail start
await '[ "$(words | wc -l)" = 1 ]' || fail 'the victim does not run'
page=$(attack page)

# While it runs.
hypercall $BUSY $LOAD 0 0x200000 "$page" 4096
hypercall $BUSY $START 0 0x200000 0x1000 0
hypercall $BUSY $RECLAIM 0

# When it was stopped.
crtos cell stop victim || fail stop
for address in 0x200000 0x400000 0x800000; do
	hypercall $BUSY $LOAD 0 $address "$page" 4096
	hypercall $BUSY $START 0 $address 0x1000 0
done
hypercall 0 $STOP 0

# When a part of its memory was cleared.
hypercall 1 $RECLAIM 0
hypercall $BUSY $LOAD 0 0x400000 "$page" 4096
hypercall $BUSY $START 0 0x400000 0x1000 0

# The commands clear all of it first.
for round in 2 3 4; do
	crtos cell start victim $inmates/prober.elf --command-line fill || fail "start $round"
	await "[ \"\$(words | wc -l)\" = $round ]" || fail "the program does not run, round $round"
	crtos cell stop victim || fail "stop $round"
done
cleared 4 || { words; fail 'memory was not clear'; }

# A cell that failed keeps what it had, as well.
crtos cell start victim $inmates/prober.elf --command-line port || fail 'start of what fails'
await '[ "$(crtos cell list --json | gojq -r .[0].state)" = failed ]' || fail 'it does not fail'
hypercall $BUSY $LOAD 0 0x200000 "$page" 4096
hypercall $BUSY $START 0 0x200000 0x1000 0
crtos cell start victim $inmates/prober.elf --command-line fill || fail 'start after a failure'
await '[ "$(words | wc -l)" = 5 ]' || fail 'it does not run after a failure'
cleared 5 || fail 'memory was not clear after a failure'

# Memory is not started that was not given.
crtos cell stop victim
while [ "$(attack hypercall $RECLAIM 0)" = 1 ]; do :; done
hypercall $INVALID $LOAD 0 0x200000 "$page" 4096

rmmod attack
crtos cell destroy victim || fail destroy
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
