# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Programs under Linux and in the realm, which both have the device that these drive, one after the
# other.

# The status with which each ended under Linux, by its name.
declare -A natively

# natively SECONDS PROGRAM: runs it under Linux, for so long at most.
natively() {
	local name=${2##*/}
	timeout "$1" "$2" >"$name.linux" 2>"$name.linux.err"
	natively[$name]=$?
}

# alike SECONDS PROGRAM: runs it in the realm. Both have to end with 0, and to print the same; the
# script's `fail` is told if not.
alike() {
	local realm name=${2##*/}
	local linux=${natively[$name]}
	timeout "$1" crtos run -- "$2" >"$name.realm" 2>"$name.realm.err"
	realm=$?
	cat "$name.realm"
	[ "$linux" != 0 ] || [ $realm != 0 ] || ! cmp -s "$name.linux" "$name.realm" || return 0
	fail "$name: status $linux under Linux, $realm in the realm"
	grep -A1 FAILED "$name.linux" | sed 's/^/  Linux: /'
	tail -n 1 "$name.linux.err" "$name.realm.err"
	diff "$name.linux" "$name.realm"
	crtos log | tail -5
	return 1
}
