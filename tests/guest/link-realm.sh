#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The real-time realm is a peer of a link: the same program of Debian's Python finds the same rules
# in Linux and in the realm, both share data and ring each other, an inmate answers the realm, and
# who closes, is killed or goes down with the realm is seen as gone. What cannot be is refused.
# kernels: 6.12
# realm: no
# shared: yes
# timeout: 600
# uses: link
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe crtos || exit 1
dmesg --clear

# What a peer does, in Linux as 0 and in the realm as 1; the other one is its only acquaintance.
cat >peer.py <<'P'
import ctypes, errno, mmap, os, select, struct, sys
what, own = sys.argv[1], int(sys.argv[2])
page, peers, common, output = 4096, 3, 65536, 16384
other = 1 - own
start = (1 + peers) * page + common
name = '/dev/crtos-shm/plant'
file = os.open(name, os.O_RDWR)
def fails(what, call):
    try:
        call()
        print(what, 'works')
    except OSError as error:
        print(what, errno.errorcode[error.errno])
def section(offset, size, rights, flags=mmap.MAP_SHARED):
    return mmap.mmap(file, size, flags, rights, offset=offset)
READ, BOTH = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
table = section(0, (1 + peers) * page, READ)
mine = section((1 + own) * page, page, BOTH)
shared = section((1 + peers) * page, common, BOTH)
state = lambda peer: struct.unpack_from('<I', table, (1 + peer) * page)[0]
def until(condition):
    poll = select.poll()
    poll.register(file, select.POLLIN)
    for _ in range(600):
        if condition():
            return True
        if poll.poll(100):
            os.read(file, 4)
    return False
if what == 'rules':
    print('magic', table[:8] == b'CRTOSLK1')
    fails('header', lambda: section(0, page, BOTH))
    fails('other page', lambda: section((1 + other) * page, page, BOTH))
    fails('other output', lambda: section(start + other * output, output, BOTH))
    fails('own output', lambda: section(start + own * output, output, BOTH))
    fails('across', lambda: section((1 + own) * page, 2 * page, BOTH))
    fails('beyond', lambda: section(start + peers * output, page, READ))
    fails('end', lambda: section(start + (peers - 1) * output, output + page, READ))
    fails('private', lambda: section(0, page, READ, mmap.MAP_PRIVATE))
    fails('execute', lambda: section(0, page, READ | mmap.PROT_EXEC))
    fails('twice', lambda: os.open(name, os.O_RDWR))
    fails('self', lambda: os.write(file, struct.pack('<I', own)))
    fails('nobody', lambda: os.write(file, struct.pack('<I', peers)))
    fails('far', lambda: os.write(file, struct.pack('<I', 1 << 31)))
    fails('short', lambda: os.write(file, b'abc'))
    fails('long read', lambda: os.read(file, 8))
    os.set_blocking(file, False)
    fails('nothing', lambda: os.read(file, 4))
    poll = select.poll()
    poll.register(file)
    print('ready', poll.poll(0)[0][1] == select.POLLOUT)
    print('ring', os.write(file, struct.pack('<I', other)))
    # What the rights of a mapping, and its length, can become.
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    def later(what, result):
        wrong = result in (-1, ctypes.c_void_p(-1).value)
        print(what, errno.errorcode[ctypes.get_errno()] if wrong else 'works')
    theirs = libc.mmap(None, page, READ, mmap.MAP_SHARED, file, (1 + other) * page)
    own_page = libc.mmap(None, page, READ, mmap.MAP_SHARED, file, (1 + own) * page)
    later('write later', libc.mprotect(theirs, page, BOTH))
    later('write own later', libc.mprotect(own_page, page, BOTH))
    later('execute later', libc.mprotect(theirs, page, READ | mmap.PROT_EXEC))
    later('execute own later', libc.mprotect(own_page, page, BOTH | mmap.PROT_EXEC))
    later('grow', libc.mremap(theirs, page, 2 * page, 1))
    later('again', libc.mremap(theirs, 0, page, 1))
    later('move', libc.mremap(theirs, page, page, 1))
    # The peer is there until nothing is mapped any more, in a child either.
    struct.pack_into('<I', mine, 0, 6)
    os.close(file)
    print('mapped', state(own))
    fails('open while it is mapped', lambda: os.open(name, os.O_RDWR))
    child = os.fork()
    if child == 0:
        os._exit(state(own))
    print('child', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.munmap(theirs, page)
    mine.close()
    shared.close()
    table.close()
    fails('open while a page is mapped', lambda: os.open(name, os.O_RDWR))
    libc.munmap(own_page, page)
    fails('open at last', lambda: os.open(name, os.O_RDWR))
    file = os.open('/dev/null', os.O_RDWR)
elif what == 'ping':
    struct.pack_into('<I', mine, 0, 1)
    os.write(file, struct.pack('<I', other))
    print('there', until(lambda: state(other)), flush=True)
    rounds = 0
    for number in range(200):
        # Even numbers are peer 0's to add to, odd ones peer 1's.
        if until(lambda: struct.unpack_from('<Q', shared)[0] == 2 * number + own):
            struct.pack_into('<Q', shared, 0, 2 * number + own + 1)
            os.write(file, struct.pack('<I', other))
            rounds += 1
    print('rounds', rounds)
elif what == 'stay':
    struct.pack_into('<I', mine, 0, 5)
    print('here', flush=True)
    until(lambda: False)
elif what == 'gone':
    print('there', until(lambda: state(other) == 5), flush=True)
    print('gone', until(lambda: state(other) == 0), flush=True)
P

refused 'there is no link' crtos up --cpus 3 --memory 256M --link plant
crtos link create plant --common 64K --output 16K --peers 3 || exit 1
crtos up --cpus 3 --memory 256M --link plant --dry-run | grep -q 'peer of the link plant' ||
	fail 'a rehearsal says nothing of the link'
refused 'is not free' crtos up --cpus 3 --memory 256M --link plant:3
refused 'is peer 1 of' crtos up --cpus 3 --memory 256M --link plant --link plant
[ "$(crtos link list --json | gojq -r '[.[0].peers[].cell | numbers] | length')" = 0 ] ||
	fail 'a realm that did not start is a peer'
crtos up --cpus 3 --memory 256M --link plant || exit 1
refused 'are peers of' crtos link destroy plant

# The same rules.
python3 peer.py rules 0 >linux || fail 'rules in Linux'
crtos run python3 peer.py rules 1 >realm || fail 'rules in the realm'
diff linux realm || fail 'the rules differ'
grep -c EACCES linux | grep -qx 8 || fail "in Linux: $(cat linux)"
grep -qx 'mapped 6' linux || fail "in Linux: $(cat linux)"
await '[ "$(peer 0)$(peer 1)" = 00 ]' 100 || fail "who had it is still there: $(peer 0) $(peer 1)"

# Data and doorbells, both ways; Linux's program has its file open meanwhile.
python3 peer.py ping 0 >linux & program=$!
crtos run python3 peer.py ping 1 >realm || fail 'ping in the realm'
wait $program || fail 'ping in Linux'
for side in linux realm; do
	grep -q 'rounds 200' $side || fail "$side: $(cat $side)"
done
await '[ "$(peer 0)$(peer 1)" = 00 ]' 100 || fail "somebody is still there: $(peer 0) $(peer 1)"

# A program of the realm is killed, and then the realm goes down.
crtos run python3 peer.py stay 1 >stay & program=$!
python3 peer.py gone 0 >gone & watcher=$!
await 'grep -q there gone' 100 || fail 'nobody is there'
kill -KILL $program
wait $watcher
grep -q 'gone True' gone || fail "a kill: $(cat gone)"
crtos run python3 peer.py rules 1 >realm || fail 'it cannot be opened again'
crtos down || fail down
crtos link destroy plant || fail 'the link stays'
complaints | grep . && fail 'Linux complains'
exit $failed
