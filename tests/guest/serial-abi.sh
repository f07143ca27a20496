#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A UART of the realm is to programs what it is under Linux: tests/abi/serial.c runs under Linux,
# and then in the realm, against a UART of Linux at the other end of the wire.
# kernels: 6.1 6.12
# realm: no
# uarts: yes
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
program=/usr/lib/crtos-tests/abi/serial
timeout 300 $program >linux.out 2>linux.err
linux=$?
crtos up --cpus 3 --memory 256M --device ttyS1 || exit 1
timeout 400 crtos run -- $program >realm.out 2>realm.err
realm=$?
cat realm.out
if [ $linux != 0 ] || [ $realm != 0 ] || ! cmp -s linux.out realm.out; then
	echo "FAILED: status $linux under Linux, $realm in the realm"
	grep -A1 FAILED linux.out | sed 's/^/  Linux: /'
	tail -n 1 linux.err realm.err
	diff linux.out realm.out
	crtos log | tail -5
	exit 1
fi
crtos down || exit 1
