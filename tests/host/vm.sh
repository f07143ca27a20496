#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `./x vm` passes arguments, streams, signals and exit statuses through as they are.
# full: PACKAGES=yes
# timeout: 1800
# tier: full
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
vm() { ./x vm --no-realm --timeout 1000 "$@"; }

# check WHAT EXPECTED ACTUAL
check() {
	[ "$2" = "$3" ] && return
	echo "$1: expected '$2', got '$3'"
	failed=1
}

mkdir "$dir/share"
echo before >"$dir/share/file"
head -c 67108864 /dev/urandom >"$dir/in"
vm --share "$dir/share" -- '
	cat /mnt/share/file; echo after >/mnt/share/file
	echo error >&2; cat; exit 7' >"$dir/out" 2>"$dir/err" <"$dir/in"
check 'exit status' 7 $?
check 'standard error' error "$(cat "$dir/err")"
check 'the shared folder' after "$(cat "$dir/share/file")"
(echo before; cat "$dir/in") | cmp - "$dir/out"
check 'standard output, 64 MiB through both ways' 0 $?

# QEMU's network answers for the machine itself at 10.0.2.2; nobody listens at the port.
CRTOS_NO_BUILD=1 vm --network -- sh -c '
	printf "<%s>" "$@"
	socat -u /dev/null TCP:10.0.2.2:1
	kill -9 $$' sh 'a  b' "'" '' >"$dir/out" 2>"$dir/err"
check 'status of a signal' 137 $?
check 'arguments' "<a  b><'><>" "$(cat "$dir/out")"
grep -q 'Connection refused' "$dir/err"
check 'the network' 0 $?

./x vm --no-realm --timeout 12 -- 'sleep 100' 2>"$dir/err"
check 'status of a timeout' 124 $?

[ -z "${PACKAGES:-}" ] || check 'gdb in place of gdb-minimal' 'GNU gdb' \
	"$(vm --packages gdb -- 'gdb --version' | head -1 | cut -d ' ' -f 1-2)"

vm -- 'echo c >/proc/sysrq-trigger; sleep 60' 2>"$dir/err"
check 'status of a panic' 125 $?
grep -q 'Kernel panic - not syncing: sysrq' "$dir/err"
check 'a panic is told' 0 $?
[ $failed = 0 ] || cat "$dir/err"
exit $failed
