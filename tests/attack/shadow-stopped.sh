#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The shadow of a program does nothing any more while the realm's kernel waits for it. Others do not
# wait for that: they map the same file, and have epoll sets in each other.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
chmod 755 .
forge=$PROGRAMS/forge
crtos up --cpus 3 --memory 512M || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
member="setpriv --reuid 12345 --regid 12345 --groups $(stat -c %g /dev/crtos)"

# Its pages are read when they are touched.
head -c 9M /dev/urandom >large
sleep 2

# beside LAST ROLE [ARGUMENT]: a member's program plays that role, and its shadow stops before it
# asks Linux for anything. Another one plays the same role, and says LAST.
beside() {
	local last=$1
	shift
	rm -f ice
	$member "$forge" freeze "$PWD/ice" crtos run -- "$forge" "$@" 6 >said &
	stopped=$!
	await 'grep -q ready said' || fail "$1: the first program does not begin"
	touch ice
	sleep 10
	found=$(timeout 60 crtos run -- "$forge" "$@" 0 | tail -n 1)
	if [ "$found" = "$last" ]; then echo "ok $1"; else fail "$1: $found, not $last"; fi
	grep -q "$last" said && fail "$1: the first program was not stopped"
	kill -KILL $stopped
	wait $stopped 2>/dev/null
}
beside touched touch "$PWD/large"
beside nested nest

crtos down || fail down
exit $failed
