#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Peers of a link that attack each other: a cell hides the rings of another one, rings all without
# end while a neighbour dies and starts again, and makes calls with wild arguments; a member of the
# group crtos maps what is not Linux's to write; root kills commands at any step. A locked cell gets
# no neighbours any more, whoever asks.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# timeout: 1800
# uses: devices link
# full: ROUNDS=300,REST=3000000
set -u
cd "$(mktemp -d)" || exit 1
chmod 755 .
failed=0
fail() { echo "FAILED $*"; failed=1; }
inmates=/usr/lib/crtos/inmates
# start CELL COMMAND-LINE: runs the demo there, from its beginning.
start() {
	[ "$(state "$1")" != running ] || crtos cell stop "$1" || fail "stop of $1"
	crtos cell start "$1" $inmates/link.elf --command-line "$2" || fail "start of $1"
}
# as GROUP COMMAND...: a user who has no rights but those of the group.
as() {
	local group=$1
	shift
	timeout 100 setpriv --reuid 12345 --regid 12345 --groups "$group" "$@" 2>&1
}
attacker || exit 1
dmesg --clear
rounds=${ROUNDS:-3}

crtos link create plant --common 64K --output 16K --peers 4 || exit 1
crtos cell create left --cpus 2 --memory 4M --link plant || exit 1
crtos cell create right --cpus 3 --memory 4M --link plant:2 || exit 1

# Members of the group, and others.
cat >member.py <<'P'
import ctypes, errno, mmap, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.mremap.restype = ctypes.c_void_p
integer = ctypes.c_int
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[integer] * 3, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
libc.mremap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
NONE = ctypes.c_void_p(-1).value
READ, WRITE, EXEC, SHARED, PRIVATE = 1, 2, 4, 1, 2
page, peers, common, output = 4096, 4, 65536, 16384
size = (1 + peers) * page + common + peers * output
def name(result):
    return errno.errorcode[ctypes.get_errno()] if result in (-1, NONE) else 'done'
def attempt(what, offset, length, protection, flags=SHARED):
    print(what, name(libc.mmap(None, length, protection, flags, file, offset)))
try:
    file = os.open('/dev/crtos-shm/plant', os.O_RDONLY if sys.argv[1] == 'read' else os.O_RDWR)
except OSError as error:
    print('open', errno.errorcode[error.errno])
    sys.exit()
if sys.argv[1] == 'read':
    attempt('read', 0, size, READ)
    attempt('write', page, page, READ | WRITE)
    at = libc.mmap(None, page, READ, SHARED, file, page)
    print('later', name(libc.mprotect(at, page, WRITE)))
    try:
        os.write(file, struct.pack('<I', 1))
        print('rang')
    except OSError as error:
        print('ring', errno.errorcode[error.errno])
    sys.exit()
attempt('all', 0, size, READ)
attempt('beyond', 0, size + page, READ)
attempt('behind', size, page, READ)
attempt('wrapped', (1 << 63) - page, 2 * page, READ)
attempt('private', 0, page, READ, PRIVATE)
attempt('private to write', 0, page, READ | WRITE, PRIVATE)
attempt('code', page, page, READ | EXEC)
attempt('header', 0, page, READ | WRITE)
attempt('own and the next', page, 2 * page, READ | WRITE)
attempt('common and an output', (1 + peers) * page, common + output, READ | WRITE)
attempt('common', (1 + peers) * page, common, READ | WRITE)
foreign = libc.mmap(None, page, READ, SHARED, file, 2 * page)
print('write later', name(libc.mprotect(foreign, page, READ | WRITE)))
print('execute later', name(libc.mprotect(foreign, page, READ | EXEC)))
print('grow', name(libc.mremap(foreign, page, 2 * page, 1)))
memory = os.open('/proc/self/mem', os.O_RDWR)
try:
    os.pwrite(memory, b'1234', foreign)
    print('forced')
except OSError as error:
    print('force', errno.errorcode[error.errno])
for length in (0, 1, 3, 5, 8):
    for call in (lambda: os.read(file, length), lambda: os.write(file, bytes(length))):
        try:
            call()
            print('length', length)
        except OSError as error:
            assert error.errno == errno.EINVAL or length == 0, (length, error)
# A child has the file and the mappings; the link is open until the last of both has ended.
own = mmap.mmap(file, page, offset=page)
struct.pack_into('<I', own, 0, 9)
if os.fork() == 0:
    os.close(file)
    open('child', 'w').write(str(os.getpid()))
    libc.pause()
P
group=$(stat -c %g /dev/crtos)
await '[ "$(stat -c %g /dev/crtos-shm/plant)" = "$group" ]' 100 || fail 'the group does not have it'
[ "$(as 12345 python3 member.py read)" = 'open EACCES' ] || fail 'others have it'
touch child && chmod 666 child
as "$group" python3 member.py read >found
cat >expected <<'X'
read done
write EACCES
later EACCES
ring EBADF
X
diff expected found || fail 'a member that reads'
as "$group" python3 member.py write >found
cat >expected <<'X'
all done
beyond ENXIO
behind ENXIO
wrapped ENXIO
private EINVAL
private to write EINVAL
code EACCES
header EACCES
own and the next EACCES
common and an output EACCES
common done
write later EACCES
execute later EACCES
grow EFAULT
force EIO
X
diff expected found || fail 'a member that writes'
await '[ -s child ]' 100 || fail 'no child'
[ "$(peer 0)" = 9 ] || fail "a child does not keep the link: $(peer 0)"
[ "$(as "$group" python3 member.py read)" = 'open EBUSY' ] || fail 'it is open twice'
kill -KILL "$(cat child)"
await '[ "$(peer 0)" = 0 ]' 100 || fail 'nobody sees that the child has ended'

# A peer takes back one of its rings for each of another peer: Linux's program hears that all the
# same.
cat >listen.py <<'P'
import mmap, os, select, struct
file = os.open('/dev/crtos-shm/plant', os.O_RDWR)
page, peers, common = 4096, 4, 65536
mine = mmap.mmap(file, page, offset=(1 + peers) * page + common)
poll = select.poll()
poll.register(file, select.POLLIN)
heard = 0
for number in range(1, 61):
    while poll.poll(0):
        os.read(file, 4)
    struct.pack_into('<Q', mine, 0, number)
    os.write(file, struct.pack('<I', 1))
    if poll.poll(5000):
        heard += 1
    elif number - heard > 3:
        break
print(heard)
P
start left ''
await '[ "$(peer 1)" = 1 ]' 100 || fail 'nobody answers'
start right 'attack=hide'
await '[ "$(peer 2)" = 1 ]' 100 || fail 'nobody hides'
heard=$(python3 listen.py)
[ "$heard" = 60 ] || fail "$heard answers of 60 were heard"

# Calls with wild arguments.
start right 'attack=wild'
await 'crtos log | grep -q "link: linked"' 200 || fail 'no calls'
crtos log | grep -q 'link: linked 0, rang 0' || fail "$(crtos log | grep 'link: linked')"
LINK=29 NO_CELL=-2 LOCKED=-9
# The cells are 0 and 1.
hypercall 0 $LINK 0 1
for wrong in 0 7 64 4294967296; do
	hypercall $NO_CELL $LINK 0 $wrong
	hypercall $NO_CELL $LINK $wrong 0
done

# One dies and starts again while the other rings it: in bursts, since emulated CPUs that ring all
# the time leave Linux little of the host.
start left "attack=flood rest=${REST:-15000000}"
for ((round = 0; round < rounds; round++)); do
	start right ''
	[ $((round % 3)) != 0 ] || await '[ "$(peer 2)" = 1 ]' 100 || fail "$round: it is not there"
	if [ $((round % 3)) = 2 ]; then
		start right 'attack=header'
		await '[ "$(state right)" = failed ]' 100 || fail "$round: $(state right)"
	else
		crtos cell stop right || fail "$round: stop"
	fi
	await '[ "$(peer 2)" = 0 ]' 100 || fail "$round: it is not seen as gone"
done
[ "$(state left)" = running ] || fail "who rings is $(state left)"
rung=$(python3 -c "
import mmap, os, struct
file = os.open('/dev/crtos-shm/plant', os.O_RDWR)
print(struct.unpack_from('<I', mmap.mmap(file, 4096, prot=mmap.PROT_READ, offset=8192), 16)[0])")
echo "$rung rings in $rounds rounds"
[ "$rung" -gt 2000 ] || fail 'it was hardly rung'
crtos cell destroy right || fail 'destroy while it is rung'

# Commands that are killed: what is left, the next command mends.
start left ''
for ((round = 0; round < rounds; round++)); do
	killed 100 crtos cell create right --cpus 3 --memory 4M --link plant:2
	if [ "$(state right)" = none ]; then
		crtos cell create right --cpus 3 --memory 4M --link plant:2 || fail "$round: create"
	fi
	killed 60 crtos link destroy plant
	[ -c /dev/crtos-shm/plant ] || fail "$round: a link with cells is gone"
	killed 60 crtos cell destroy right
	[ "$(state right)" = none ] || crtos cell destroy right || fail "$round: destroy"
	killed 60 crtos link create brief
	[ ! -e /dev/crtos-shm/brief ] || killed 60 crtos link destroy brief
	[ ! -e /dev/crtos-shm/brief ] || crtos link destroy brief || fail "$round: destroy brief"
done

# A locked cell gets no neighbours: they could interrupt it, each as often as Linux may.
crtos cell create right --cpus 3 --memory 4M || fail 'create right'
crtos cell start right $inmates/prober.elf --command-line 'idle-count agrees' || fail 'start right'
number=$(crtos cell list --json | gojq '.[] | select(.name == "right") | .cell')
left=$(crtos cell list --json | gojq '.[] | select(.name == "left") | .cell')
hypercall 0 $LINK "$left" "$number"
crtos cell lock right || fail lock
hypercall $LOCKED $LINK "$left" "$number"
hypercall $LOCKED $LINK "$number" "$left"
crtos cell doorbell right || fail 'doorbell'
await '[ "$(state right)" = running ]' || fail 'it does not agree to its end'
crtos cell destroy right || fail 'destroy right'
crtos cell destroy left || fail 'destroy left'
crtos link destroy plant || fail 'the link stays'
complaints | grep . && fail 'Linux complains'
exit $failed
