#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The length of local system calls, in instructions between the program's SYSCALL and what follows.
# kernels: 6.1
# icount: yes
# realm: no
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
crtos up --cpus 3 --memory 512M || exit 1
trap 'crtos down' EXIT
chrt -f 80 crtos run -- "$PROGRAMS/calls" >realm || exit 1
taskset -c 1 "$PROGRAMS/calls" >linux || exit 1
echo "instructions: least, median, most; in the realm, and in Linux"
sort -o realm realm; sort -o linux linux; join realm linux
# at_most NAME INSTRUCTIONS
at_most() {
	local median
	median=$(awk -v name="$1" '$1 == name { print $3 }' realm)
	[ "$median" -le "$2" ] && return
	echo "FAILED $1: $median instructions, not $2 at most"
	failed=1
}
failed=0
at_most getpid 60
at_most gettid 60
at_most clock_gettime 250
exit $failed
