#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of a member have the kernel keep as much as it does, of each kind of what it keeps in its
# heap. They are refused more, the kernel goes on, and has everything back when they end.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# uses: member hostiles
# timeout: 1800
# full: MORE=yes
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
crtos up --cpus 3 --memory 256M --private 32M || exit 1
dmesg --clear
# Of 24 MiB, with entries for signals, which stay.
is_back() {
	crtos stats --json | gojq -e '.realm | .heap_bytes < 9e6 and .heap_used_bytes < 4e6' >/dev/null
}
# lasts HOW WHAT CHILDREN
lasts() {
	hostiles "$@" || fail "$2: it does not end"
	same "after $2 a program runs" there "$(there)"
	await is_back 100 || fail "$2: $(crtos stats | grep '^kernel heap')"
}
# refused HOW WHAT CHILDREN: as long as they were refused more for want of memory.
refused() {
	lasts "$@"
	grep -q '(12)' told || fail "$2: nobody is refused anything"
}
refused ended holes 3
refused killed rights 3
refused ended marks 3
refused killed moves 3
refused ended objects 3
refused killed descriptors 12
refused ended pipes 3
refused killed sets 6
lasts ended clocks 3
lasts killed timers 3
lasts ended signals 2
lasts killed records 3
lasts ended contexts 12
if [ -n "${MORE-}" ]; then
	lasts killed copies 12
	lasts ended threads 3
	lasts killed processes 400
fi
complaints | grep . && fail dmesg
crtos down || fail down
exit $failed
