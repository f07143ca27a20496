#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# I/O ports are to programs of the realm what they are under Linux: tests/abi/ports.c runs under
# Linux, and then in the realm, which has the ports alone.
# kernels: 6.1 6.12
# realm: no
# parallel: yes
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
program=/usr/lib/crtos-tests/abi/ports
timeout 60 $program >linux.out 2>linux.err
linux=$?
crtos up --cpus 3 --memory 256M --port 0x378-0x37b:exclusive --port 0x37e-0x37f || exit 1
timeout 100 crtos run -- $program >realm.out 2>realm.err
realm=$?
cat realm.out
if [ $linux != 0 ] || [ $realm != 0 ] || ! cmp -s linux.out realm.out; then
	fail "status $linux under Linux, $realm in the realm"
	grep -A1 FAILED linux.out | sed 's/^/  Linux: /'
	tail -n 1 linux.err realm.err
	diff linux.out realm.out
fi
crtos down || fail 'down'
exit $failed
