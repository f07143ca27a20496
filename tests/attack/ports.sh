#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The I/O port by which software has the firmware take all CPUs: for Linux, and for cells that root
# configures, there is no device while the hypervisor runs.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
# The port that ACPI's FADT names.
smi=$(od -An -tu4 -j48 -N4 /sys/firmware/acpi/tables/FACP | tr -d ' ')
[ "$smi" -gt 0 ] || { echo 'this machine has no such port'; exit 1; }

attacker || exit 1
before=$(attack inb "$smi")
crtos cell create cell --cpus 3 --memory 4M || exit 1
dmesg --clear
attack outb "$smi" 0x5a >/dev/null || fail 'a write fails'
[ "$(attack inb "$smi")" = 0xff ] || fail "the port reads as $(attack inb "$smi")"
# Its neighbour, which has no effect on others, is there.
attack outb $((smi + 1)) 0x33 >/dev/null || fail 'a write to the next port fails'
[ "$(attack inb $((smi + 1)))" = 0x33 ] || fail 'the next port is not there'
attack outb $((smi + 1)) 0 >/dev/null
for range in "$smi" "$((smi - 1))-$((smi + 1))" "$smi:exclusive"; do
	crtos cell create other --cpus 2 --memory 4M --port "$range" 2>/dev/null && {
		fail "a cell gets $range"
		crtos cell destroy other
	}
done
# A cell that had its neighbours to itself does not give it to Linux with them.
crtos cell create other --cpus 2 --memory 4M --port "$((smi + 1)):exclusive" || fail create
crtos cell destroy other || fail destroy
attack outb "$smi" 0x5b >/dev/null || fail 'a write fails'

crtos cell destroy cell || fail destroy
crtos down || fail down
[ "$(attack inb "$smi")" = "$before" ] || fail "the port reads as $(attack inb "$smi"), not $before"
rmmod attack
complaints | grep . && fail dmesg
exit $failed
