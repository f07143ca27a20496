# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Programs of which some run under Linux and others in the realm.

# Seconds that one has.
patience=300
# on WHERE COMMAND...: runs it there, in place of the shell.
on() {
	local where=$1
	shift
	[ "$where" = linux ] || set -- crtos run -- "$@"
	exec timeout $patience "$@"
}

# ends: the realm goes on after all that, and goes; Linux complains of nothing.
ends() {
	crtos log | tail -n 5
	crtos run -- busybox true || fail 'the realm does not go on'
	crtos down || fail down
	complaints | grep . && fail dmesg
}
