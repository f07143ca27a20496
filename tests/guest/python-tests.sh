#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Python's own tests of what it gets from the kernel pass in the realm where they pass under Linux.
# kernels: 6.12
# tier: full
# realm: no
# mem: 4G
# packages: libpython3.11-testsuite,python3
# timeout: 5000
set -u
cd "$(mktemp -d)" || exit 1
failed=0
only=${1:-}
modules=(builtin contextlib dbm_dumb eintr epoll fcntl file fileio fork1 glob io ioctl kqueue)
modules+=(largefile mmap openpty pathlib pipes poll popen posix posixpath pty queue resource sched)
modules+=(select selectors shelve shutil signal socketserver stat subprocess syslog tempfile)
modules+=(termios thread threadedtempfile threadsignals threading_local time timeout tty wait3)
modules+=(wait4 concurrent_futures faulthandler)

# passes MODULE WHERE COMMAND...: whether Python's tests of a module do.
passes() {
	local module=$1 where=$2
	shift 2
	timeout 400 "$@" python3 -m test --timeout 300 "test_$module" >"$module.$where" 2>&1 </dev/null
}

crtos up --cpus 2,3 --memory 1G || exit 1
for module in "${modules[@]}"; do
	case $module in *$only*) ;; *) continue ;; esac
	begin=$SECONDS
	passes "$module" linux || { echo "$module: Linux itself does not pass"; continue; }
	middle=$SECONDS
	passes "$module" realm crtos run --
	status=$?
	echo "$module: Linux $((middle - begin)) s, realm $((SECONDS - middle)) s, status $status"
	[ $status = 0 ] || {
		failed=1
		grep -E -A25 '^(FAIL|ERROR):|Timeout|Traceback' "$module.realm" | head -60
	}
done
crtos down || failed=1
exit $failed
