#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A member whose programs have limits (`crtos up --limit`) tries to have more memory, CPUs or
# priority than that, to have another user pay or be refused, and to leave the count wrong.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# packages: e2fsprogs,python3-minimal
# tier: full
# timeout: 3000
set -u
cd "$(mktemp -d)" || exit 1
chmod 777 .
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe crtos	# Linux warns of modules that are not its own
dmesg --clear
crtos up --cpus 2-3 --memory 256M --limit 12345:cpus=3:memory=48M:priority=40 \
	--limit 12346:memory=48M || exit 1
group=$(stat -c %g /dev/crtos)
# Linux permits them anything.
as() (
	local uid=$1
	shift
	exec timeout 100 prlimit --rtprio=99 --memlock=unlimited --nice=40 \
		setpriv --reuid "$uid" --regid "$uid" --groups "$group" "$@"
)
realm() { as "$1" crtos run -- "${@:2}"; }
# What the realm has left, in KiB.
left() { crtos stats --json | gojq '.realm.pool_free_bytes / 1024 | floor'; }
nobody_runs() { [ -z "$(crtos ps --json | gojq -r '.[].pid')" ]; }
# gets UID WHAT: that user's programs get the share.
gets() { await "realm $1 python3 -IS attack.py take 24 2>/dev/null" 300 || fail "$2"; }
whole() {
	await nobody_runs 300 || fail "$1: a program is left"
	gets 12345 "$1: less than the share"
}
others() { gets 12346 'less for another'; }

# A file that everybody may read, and one that both users may write to; not in Linux's memory alone.
mkdir disk
truncate -s 200M disk.image
modprobe -a loop ext4
mkfs.ext4 -q disk.image && mount -o loop disk.image disk || exit 1
dd if=/dev/urandom of=disk/large bs=1M count=100 status=none
chmod 644 disk/large
sync
sleep 2

cat >attack.py <<'P'
import ctypes, mmap, os, signal, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mremap.restype = ctypes.c_void_p
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
MIB = 1 << 20
BAD = ctypes.c_void_p(-1).value

def pages(length, flags=0x22, fd=-1, offset=0, rights=3):
    address = libc.mmap(None, length, rights, flags, fd, offset)
    if address == BAD:
        raise OSError(ctypes.get_errno(), 'mmap')
    return address

def fill(address, length):
    ctypes.memset(address, 1, length)

def touch(address, length):
    for at in range(address, address + length, MIB // 16):
        ctypes.string_at(at, MIB // 16)

def take(mib):
    fill(pages(mib * MIB), mib * MIB)

# Each of these has more than the limit, if it comes to its end.
def memory(mib):
    take(mib)

def forks(mib):
    take(20)
    for _ in range(mib // 20):
        if not os.fork():
            time.sleep(100)
    time.sleep(5)
    return 'forked'

def threads(mib):
    stop = threading.Event()
    def run():
        fill(pages(MIB), MIB)
        stop.wait(100)
    for _ in range(mib):
        threading.Thread(target=run, daemon=True).start()
    time.sleep(3)
    os._exit(0)

def shared(mib):
    for _ in range(mib // 4):
        address = pages(4 * MIB, 0x21)
        fill(address, 4 * MIB)
        libc.madvise(address, 4 * MIB, 4)

def moved(mib):
    address, size = pages(4 * MIB), 4 * MIB
    while size < mib * MIB:
        address = libc.mremap(address, size, size + 4 * MIB, 1)
        if address == BAD:
            sys.exit(12)
        size += 4 * MIB
        fill(address, size)

# Pages of files that are read ahead, and are not touched or given up again.
def files(mib):
    fd = os.open('disk/large', os.O_RDONLY)
    for at in range(0, mib, 4):
        pages(4 * MIB, 0x2, fd, at * MIB, 1)

def files_given_up(mib, flags=0x2):
    fd = os.open('disk/large', os.O_RDONLY)
    address = pages(mib * MIB, flags, fd, 0, 1)
    for at in range(address, address + mib * MIB, MIB):
        touch(at, MIB)
        libc.madvise(at, MIB, 4)

def shared_file(mib):
    files_given_up(mib, 0x1)

# A mapping keeps what a second one has brought and gives up.
def kept_file(mib):
    fd = os.open('disk/large', os.O_RDONLY)
    pages(mib * MIB, 0x2, fd, 0, 1)
    for at in range(0, mib, 4):
        libc.munmap(pages(4 * MIB, 0x2, fd, at * MIB, 1), 4 * MIB)

def part(at):
    fd = os.open('disk/large', os.O_RDONLY)
    pages(12 * MIB, 0x2 | 0x8000, fd, at * MIB, 1)

def keep(mib):
    pages(mib * MIB, 0x2, os.open('disk/large', os.O_RDONLY), 0, 1)
    open('held', 'w').close()
    time.sleep(100)

# What is unmapped while Linux has it in pipes.
def piped(mib):
    class Range(ctypes.Structure):
        _fields_ = [('start', ctypes.c_void_p), ('length', ctypes.c_size_t)]
    for number in range(mib):
        os.mkfifo(f'pipe{number}')
        fd = os.open(f'pipe{number}', os.O_RDWR | os.O_NONBLOCK)
        os.unlink(f'pipe{number}')
        assert libc.fcntl(fd, 1031, MIB) == MIB
        address = pages(MIB)
        fill(address, MIB)
        done = libc.vmsplice(fd, ctypes.byref(Range(address, MIB)), ctypes.c_ulong(1), 2)
        assert done == MIB, (done, ctypes.get_errno())
        libc.munmap(address, MIB)

def piped_take(mib):
    piped(24)
    take(mib)

# What Linux has had, again and again: it is there as soon as Linux has let it go.
def again(mib):
    with open('disk/large', 'rb', buffering=0) as file:
        for _ in range(20):
            memory = mmap.mmap(-1, mib * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            file.seek(0)
            file.readinto(memory)
            memory.close()

def held(mib):
    fd = os.open('disk/large', os.O_RDONLY)
    touch(pages(mib * MIB, 0x2, fd, 0, 1), mib * MIB)
    open('held', 'w').close()
    time.sleep(100)

def killed(mib):
    take(mib)
    pages(MIB, 0x21)
    threading.Thread(target=lambda: time.sleep(100), daemon=True).start()
    fd = os.open('disk/large', os.O_RDONLY)
    touch(pages(4 * MIB, 0x2, fd, 40 * MIB, 1), 4 * MIB)
    os.kill(os.getpid(), signal.SIGKILL)

def exits(mib):
    take(mib)
    if len(sys.argv) < 14:
        os.execv(sys.executable, [sys.executable] + sys.argv + ['again'])

globals()[sys.argv[1]](int(sys.argv[2]))
P

# More memory.
crtos run -- python3 -IS attack.py take 1 || fail 'nothing runs'
realm 12345 python3 -IS attack.py take 24 || fail 'the share is not there'
realm 12345 python3 -IS attack.py files 20 || fail 'a part of a file'
for way in memory forks threads shared moved files files_given_up shared_file kept_file; do
	before=$(left)
	realm 12345 python3 -IS attack.py $way 100 >out 2>err
	status=$?
	case $way:$status in
	forks:*) grep -q 'Errno 12\|Cannot allocate' err || [ $status = 137 ] || fail "$way: $status" ;;
	*:0 | *:124 | *:139) fail "$way: 100 MiB, with the status $status" ;;
	esac
	crtos ps --json | gojq -r '.[].pid' | xargs -r kill -KILL 2>/dev/null
	whole $way
	echo "$way: status $status, $before KiB free before, $(left) after"
done
others
# Parts that ended programs have brought stay while there is memory, and count for who keeps them.
for at in 0 12 24 36 48 60 72 84; do
	realm 12345 python3 -IS attack.py part $at || fail "a part at $at"
done
realm 12345 python3 -IS attack.py keep 100 2>err &
await '[ -e held ]' || { fail 'a whole file, of which nothing is touched'; cat err; }
crtos run -- python3 -IS attack.py take 100 || fail 'more than the share is kept'
crtos ps --json | gojq -r '.[] | select(.command == "python3") | .pid' | xargs -r kill -KILL
wait
rm -f held
realm 12345 python3 -IS attack.py exits 24 || fail 'execve is refused'
realm 12345 python3 -IS attack.py piped 12 || fail 'pages in pipes'
realm 12345 python3 -IS attack.py piped_take 20 2>err
[ $? = 137 ] || { fail 'more by pages in pipes'; cat err; }
realm 12345 python3 -IS attack.py again 16 || fail 'what Linux has had is not there again'

# What one user has brought of a file does not count for another one, and refuses them nothing.
realm 12345 python3 -IS attack.py held 10 2>err &
await '[ -e held ]' || { fail 'the file is not held'; cat err; }
realm 12345 python3 -IS attack.py take 24 2>/dev/null && fail 'what is held does not count'
realm 12346 python3 -IS attack.py files_given_up 24 || fail 'another user is refused what is there'
realm 12346 python3 -IS attack.py take 30 || fail 'another user pays'
rm -f held
realm 12346 python3 -IS attack.py held 14 2>err &
await '[ -e held ]' || { fail 'another user is refused a file'; cat err; }
crtos ps --json | gojq -r '.[] | select(.command == "python3") | .pid' | xargs -r kill -KILL
wait
whole 'a file that others hold'

# Again and again.
before=$(left)
for ((round = 0; round < ${ROUNDS:-100}; round++)); do
	realm 12345 python3 -IS attack.py killed 16 2>/dev/null
	[ $? = 137 ] || { fail 'it was not killed'; break; }
done
await nobody_runs 300
whole killed
echo "$round times: $before KiB free before, $(left) after"
[ "$(left)" -ge $((before - 4096)) ] || fail "$round times: memory is missing"

# More CPUs and a higher priority, by whatever call.
cat >more.py <<'P'
import ctypes, os, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def attributes(tid, policy, priority, flags=0, times=(0, 0, 0), nice=0):
    text = struct.pack('IIQiIQQQ', 48, policy, flags, nice, priority, *times)
    return libc.syscall(314, tid, text, 0)
def may(what, call):
    try:
        done = call()
    except OSError:
        return
    if done != -1:
        print(what, flush=True)
for flags in (0, 1, 2, 4, 8, 16, 0x40000000):
    may(f'FIFO {flags}', lambda: attributes(0, 1, 41, flags) if not flags & 24 else -1)
    may(f'RR {flags}', lambda: attributes(0, 2, 99, flags) if not flags & 24 else -1)
    may(f'DEADLINE {flags}', lambda: attributes(0, 6, 0, flags, (1 << 20, 1 << 24, 1 << 24))
        if not flags & 24 else -1)
may('param', lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(40)) or
    os.sched_setparam(0, os.sched_param(41)))
may('keep policy', lambda: attributes(0, 1, 98, 8))
may('reset on fork', lambda: libc.syscall(144, 0, 1 | 0x40000000, struct.pack('i', 60)))
def check(where):
    priority, cpus = os.sched_getparam(0).sched_priority, os.sched_getaffinity(0)
    if priority > 40 or cpus != {3}:
        print(where, priority, cpus, flush=True)
check('here')
thread = threading.Thread(target=check, args=('thread',))
thread.start()
thread.join()
if not os.fork():
    check('child')
    os._exit(0)
os.wait()
for cpus in ({2}, {0, 1, 2}):
    may(f'affinity {cpus}', lambda: os.sched_setaffinity(0, cpus) or 0)
os.sched_setaffinity(0, range(64))
check('affinity')
if len(sys.argv) < 2:
    os.execv(sys.executable, [sys.executable, __file__, 'again'])
P
realm 12345 python3 -IS more.py >out 2>err || { fail 'more.py'; cat err; }
[ -s out ] && { fail 'more than is permitted:'; cat out; }
as 12345 chrt -f 99 crtos run -- python3 -IS more.py >out 2>err || { fail 'more.py'; cat err; }
[ -s out ] && { fail 'more than is permitted by what was inherited:'; cat out; }
as 12345 taskset -c 0 unshare --user --map-root-user crtos run -- python3 -IS more.py >out 2>err
[ -s out ] && { fail 'more than is permitted in a user namespace:'; cat out; }

# Others' threads keep what they have.
crtos run -- chrt -f 50 sleep 100 &
await '[ -n "$(crtos ps --json | gojq -r ".[] | select(.command == \"sleep\") | .pid")" ]'
other=$(crtos ps --json | gojq -r '.[] | select(.command == "sleep") | .pid')
realm 12345 taskset -p 8 "$other" >/dev/null 2>&1 && fail "another user's CPUs"
realm 12345 chrt -f -p 1 "$other" >/dev/null 2>&1 && fail "another user's priority"
realm 12345 kill "$other" 2>/dev/null && fail "another user's end"
kill "$other"
wait

whole 'the end'
others
umount disk
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
