# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# One program under Linux and in the realm, which both have the device that it drives, one after the
# other.

# natively SECONDS PROGRAM: runs it under Linux, for so long at most.
natively() {
	timeout "$1" "$2" >linux.out 2>linux.err
	linux=$?
}

# alike SECONDS PROGRAM: runs it in the realm. Both have to end with 0, and to print the same; the
# script's `fail` is told if not.
alike() {
	local realm
	timeout "$1" crtos run -- "$2" >realm.out 2>realm.err
	realm=$?
	cat realm.out
	[ $linux != 0 ] || [ $realm != 0 ] || ! cmp -s linux.out realm.out || return 0
	fail "status $linux under Linux, $realm in the realm"
	grep -A1 FAILED linux.out | sed 's/^/  Linux: /'
	tail -n 1 linux.err realm.err
	diff linux.out realm.out
	crtos log | tail -5
	return 1
}
