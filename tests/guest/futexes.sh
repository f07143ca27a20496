#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Futexes across the realms: programs of the realm and of Linux exchange by the C library's
# conditions, semaphores, barriers, mutexes and read-write locks, in both directions, and no wake-up
# is lost. Who holds a robust mutex may end or be killed on either side. A killed waiter leaves
# nobody behind who takes the wake-ups of others.
# kernels: 6.12
# more kernels: 6.1 6.1-rt 6.12-rt
# realm: no
# shared: yes
# full: COUNT=20000
# timeout: 1800
# uses: exchange
set -u
modprobe crtos	# Linux warns of modules that are not its own
dmesg --clear

crtos up --cpus 3 --memory 256M || exit 1
exchanges "$PROGRAMS/exchange" 'Connection timed out' "${COUNT:-200}"

# A semaphore with a name, as Python's multiprocessing has them.
python() { python3 -c 'import _multiprocessing as m, sys
new = sys.argv[1] == "make"
a, b = (m.SemLock(1, 0, 9, name, False) if new else m.SemLock._rebuild(0, 1, 9, name)
	for name in ("/exchange-a", "/exchange-b"))
print("ready", flush=True)
for turn in range(300):
	if new: a.release(); b.acquire()
	else: a.acquire(); b.release()
print("done")' "$@"; }
export -f python
for where in 'linux realm' 'realm linux'; do
	rm -f /dev/shm/sem.exchange-*
	in_realm() { crtos run -- bash -c 'python "$@"' python "$@"; }
	[ "${where%% *}" = linux ] && set -- python in_realm || set -- in_realm python
	"$1" make >/tmp/first 2>&1 & first=$!
	says /tmp/first ready || { cat /tmp/first; exit 1; }
	"$2" open >/tmp/second 2>&1 && wait $first && says /tmp/first 'done' ||
		{ echo "Python: $where"; cat /tmp/first /tmp/second; exit 1; }
	echo "Python's semaphores: $where"
done
rm -f /dev/shm/sem.exchange-*

crtos run -- busybox true || exit 1
crtos down || exit 1
! complaints | grep .
