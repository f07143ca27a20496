#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What programs of a user may have, as `crtos up --limit` says: CPUs, memory together, a priority.
# Others have what there is; what ended programs had is there again.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
chmod 755 .
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe crtos	# Linux warns of modules that are not its own
dmesg --clear

# Wrong ones.
refused() {
	local words=$1
	shift
	crtos up --cpus 2-3 --memory 256M "$@" --dry-run >/dev/null 2>err && fail "accepted: $*"
	grep -q -- "$words" err || { fail "$*: not for $words"; cat err; }
}
refused 'there is no user nobody-at-all' --limit nobody-at-all:memory=1M
refused 'CPU 1, which the realm does not have' --limit 12345:cpus=1
refused 'gives 12345 257 MiB of memory, and the realm has 256 MiB' --limit 12345:memory=257M
refused 'names 12345 twice' --limit 12345:memory=1M --limit 12345:priority=1
refused 'is said twice' --limit 12345:memory=1M:memory=2M
refused 'has no unit' --limit 12345:memory=64
refused 'is no priority' --limit 12345:priority=100
refused 'is unknown' --limit 12345:colour=red
refused 'USER:cpus=LIST' --limit 12345
[ "$(crtos explain user-limit | head -1)" ] || fail 'no explanation'

cat >realm.toml <<'T'
cpus = "2-3"
memory = "256M"
limit = ["12345:cpus=3:memory=64M:priority=40", "*:memory=32M:priority=0"]
T
crtos up --config realm.toml --dry-run >out || fail 'dry run'
grep -q 'would limit 12345 to CPU 3, 64 MiB of memory, priority 40' out &&
	grep -q 'would limit users who are not named to 32 MiB of memory, priority 0' out ||
	{ fail 'dry run'; cat out; }
crtos up --config realm.toml || { fail up; exit 1; }
group=$(stat -c %g /dev/crtos)
# Linux permits them any priority.
as() (
	local uid=$1
	shift
	exec prlimit --rtprio=99 --memlock=unlimited \
		setpriv --reuid "$uid" --regid "$uid" --groups "$group" "$@"
)
realm() { as "$1" crtos run -- "${@:2}"; }

cat >has.py <<'P'
import mmap, os, resource, sys, time
pages = mmap.mmap(-1, int(sys.argv[1]) << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(pages), 4096):
    pages[at] = 1
if sys.argv[2] == 'fork':
    try:
        child = os.fork()
    except OSError as error:
        sys.exit(error.errno)
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
elif sys.argv[2] == 'stay':
    open(sys.argv[3], 'w').close()
    time.sleep(300)
P
chmod 777 .

# Memory.
for turn in 1 2 3; do
	realm 12345 python3 has.py 40 end || fail "40 MiB, turn $turn"
done
realm 12345 python3 has.py 80 end 2>/dev/null
[ $? = 137 ] || fail '80 MiB, and it goes on'
realm 12345 python3 has.py 40 fork
[ $? = 12 ] || fail 'a fork of 40 MiB does not fail with ENOMEM'
realm 12345 python3 has.py 10 fork || fail 'a fork of 10 MiB'
realm 12345 python3 has.py 40 stay there &
await '[ -e there ]' || fail 'it is not there'
realm 12345 python3 has.py 40 end 2>/dev/null
[ $? = 137 ] || fail 'two programs of 40 MiB'
crtos run -- python3 has.py 80 end || fail 'root has a limit'
realm 12346 python3 has.py 15 end || fail 'another user is refused'
realm 12346 python3 has.py 40 end 2>/dev/null
[ $? = 137 ] || fail 'another user has 40 MiB'
crtos ps --json | gojq -r '.[] | select(.command == "python3") | .pid' | xargs kill -KILL
wait 2>/dev/null
await 'realm 12345 python3 has.py 40 end 2>/dev/null' || fail 'nothing is given back'
as 12345 unshare --user --map-root-user crtos run -- python3 has.py 80 end 2>/dev/null
[ $? = 137 ] || fail 'root of a user namespace has no limit'
realm 12345 python3 -c '
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
assert libc.mlockall(3) == 0
assert libc.mmap(None, 80 << 20, 3, 0x22, -1, 0) in (None, 2**64 - 1)
assert ctypes.get_errno() in (11, 12)
assert libc.mmap(None, 8 << 20, 3, 0x22, -1, 0) not in (None, 2**64 - 1)
' || fail 'locked memory'

# Shared memory counts where it is, also while it is not mapped.
cat >shared.py <<'P'
import ctypes, mmap
pages = mmap.mmap(-1, 60 << 20)
for turn in range(2):
    for at in range(turn * 30 << 20, (turn + 1) * 30 << 20, 4096):
        pages[at] = 1
    pages.madvise(mmap.MADV_DONTNEED)
P
realm 12345 python3 shared.py 2>/dev/null
[ $? = 137 ] || fail '60 MiB of shared memory and as much again'
realm 12345 python3 has.py 40 end || fail 'shared memory is not given back'

# CPUs.
cat >cpus.py <<'P'
import os
assert os.sched_getaffinity(0) == {3}, os.sched_getaffinity(0)
try:
    os.sched_setaffinity(0, {2})
    raise SystemExit('it may use CPU 2')
except OSError as error:
    assert error.errno == 22
os.sched_setaffinity(0, {2, 3})
assert os.sched_getaffinity(0) == {3}
if not os.fork():
    assert os.sched_getaffinity(0) == {3}
    os._exit(0)
assert os.wait()[1] == 0
P
realm 12345 python3 cpus.py || fail CPUs
[ "$(crtos run -- python3 -c 'import os; print(os.sched_getaffinity(0))')" = '{2, 3}' ] ||
	fail "root's CPUs"

# Priorities.
realm 12345 chrt -f 40 true || fail 'priority 40'
realm 12345 chrt -f 41 true 2>/dev/null && fail 'priority 41'
realm 12345 chrt -d -T 100000 -P 1000000 0 true 2>/dev/null && fail 'a reservation'
realm 12346 chrt -f 1 true 2>/dev/null && fail 'another user has a priority'
realm 12346 chrt -b 0 true || fail 'another user has no policy'
crtos run -- chrt -f 99 true || fail "root's priority"
# Who was given more in Linux has as much as is permitted.
own='import os; print(os.sched_getparam(0).sched_priority)'
[ "$(as 12345 chrt -f 80 crtos run -- python3 -c "$own")" = 40 ] || fail 'more is inherited'
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
