#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Valgrind, which plans a program's memory by /proc/self/maps, runs programs of the realm as under
# Linux, with the same result.
# kernels: 6.12
# more kernels: 6.1
# packages: valgrind,libc6-dbg
# timeout: 400
# tier: full
set -u
failed=0
run() { timeout 150 "$@" 2>&1 | sed -E 's/==[0-9]+==/==PID==/; /Collected/d'; echo "status ${PIPESTATUS[0]}"; }
# compare TOOL COMMAND...: the same in both realms.
compare() {
	local checks=(valgrind "--tool=$1" --error-exitcode=9); shift
	run "${checks[@]}" --log-file=/tmp/linux.log "$@" >/tmp/linux
	run crtos run -- "${checks[@]}" --log-file=/tmp/realm.log "$@" >/tmp/realm
	if ! grep -q 'status 0' /tmp/linux || ! diff /tmp/linux /tmp/realm; then
		failed=1
		echo "FAILED ${checks[*]} $*"
		tail -n 5 /tmp/realm.log
	fi
}
compare memcheck ls -l /usr
compare memcheck sh -c 'for i in 1 2 3; do echo $i | tr 1-3 a-c; done'
compare none date -u -d @0
# It finds what is wrong: a call gets memory that is not there.
for where in '' 'crtos run --'; do
	# shellcheck disable=SC2086
	run $where valgrind --error-exitcode=9 perl -e 'syscall(1, 1, 0xdead0000, 4)' >/tmp/found
	grep -q 'points to unaddressable byte' /tmp/found && grep -q 'status 9' /tmp/found ||
		{ failed=1; echo "FAILED $where: nothing found"; tail -n 5 /tmp/found; }
done
exit $failed
