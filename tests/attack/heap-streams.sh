#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of a member have as many connections of TCP as they get, each with the longest buffers.
# They are refused more, the kernel goes on, and has everything back when they end.
# kernels: 6.12
# realm: no
# uses: ethernet member hostiles
# timeout: 600
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
ethernet_up --private 32M || exit 1
dmesg --clear
used() { crtos stats --json | gojq .realm.heap_used_bytes; }
before=$(used)
is_back() { [ "$(used)" -lt $((before + 2000000)) ]; }
for how in ended killed; do
	hostiles $how streams 3 || fail "$how: it does not end"
	grep -q '(105)\|(12)' told || fail "$how: nobody is refused anything"
	same "$how: a program runs" there "$(there)"
	await is_back 200 || fail "$how: $(crtos stats | grep '^kernel heap')"
done
complaints | grep . && fail dmesg
crtos down || fail down
exit $failed
