#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A link: two inmates and a program of Linux share memory, ring each other, and see who is there. A
# cell that writes what is another's is stopped, one that rings a cell it is not linked with is
# refused; who stops, fails or is killed is seen as such. Sizes and peers that do not match are
# refused, and nothing stays of what was killed.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# timeout: 600
# uses: link
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
inmate=/usr/lib/crtos/inmates/link.elf
[ -e $inmate ] || exit 1
modprobe crtos || exit 1
dmesg --clear

# What Linux's program does: prints a line for each thing that it has seen.
cat >linux.py <<'P'
import errno, mmap, os, select, struct, sys
file = os.open('/dev/crtos-shm/plant', os.O_RDWR)
page, peers, common, output = 4096, 3, 65536, 16384
start = (1 + peers) * page + common
def section(offset, size, write):
    rights = mmap.PROT_READ | (mmap.PROT_WRITE if write else 0)
    return mmap.mmap(file, size, mmap.MAP_SHARED, rights, offset=offset)
def refused(what, offset, size):
    try:
        section(offset, size, True)
        print(what, 'is mapped')
    except OSError as error:
        print(what, errno.errorcode[error.errno])
def waits(milliseconds):
    poll = select.poll()
    poll.register(file, select.POLLIN)
    if not poll.poll(milliseconds):
        return False
    os.read(file, 4)
    return True
table = section(0, (1 + peers) * page, False)
own = section(page, page, True)
outputs = section(start, peers * output, False)
mine = section(start, output, True)
state = lambda peer: struct.unpack_from('<I', table, (1 + peer) * page)[0]
def until(condition):
    for _ in range(600):
        if condition():
            return True
        waits(100)
    return False
if sys.argv[1] == 'play':
    print('magic', table[:8] == b'CRTOSLK1')
    refused('header', 0, page)
    refused('table', 2 * page, page)
    refused('foreign', start + output, output)
    refused('all', 0, start)
    try:
        os.open('/dev/crtos-shm/plant', os.O_RDWR)
    except OSError as error:
        print('twice', errno.errorcode[error.errno])
    for peer in (0, 3, 1 << 31):
        try:
            os.write(file, struct.pack('<I', peer))
        except OSError as error:
            print('ring', peer, errno.errorcode[error.errno])
    struct.pack_into('<I', own, 0, 7)
    print('answerer', until(lambda: state(1) == 1))
    answers = 0
    for number in range(1, 201):
        struct.pack_into('<Q', mine, 0, number)
        os.write(file, struct.pack('<I', 1))
        answers += until(lambda: struct.unpack_from('<Q', outputs, output)[0] == number)
    print('answers', answers)
elif sys.argv[1] == 'gone':
    peer = int(sys.argv[2])
    print('there', until(lambda: state(peer) != 0), flush=True)
    print('gone', until(lambda: state(peer) == 0))
P

crtos link create plant --common 64K --output 16K --peers 3 || exit 1
[ -c /dev/crtos-shm/plant ] || fail 'no file'
[ "$(stat -c %a /dev/crtos-shm/plant)" = 660 ] || fail "mode $(stat -c %a /dev/crtos-shm/plant)"
refused 'already' crtos link create plant
refused 'multiples of 4 KiB' crtos link create odd --common 1K
refused '16 MiB at most' crtos link create large --common 16M
refused 'has 2 to 8' crtos link create many --peers 9
refused 'there is no link' crtos cell create left --cpus 2 --link other
refused 'peer 3 of' crtos cell create left --cpus 2 --link plant:3
[ -z "$(state left 2>/dev/null)" ] || fail 'a refused cell stays'
crtos cell create left --cpus 2 --link plant || exit 1
refused 'not free' crtos cell create right --cpus 3 --link plant:1
crtos cell create right --cpus 3 --link plant:2 || exit 1
refused 'are peers of' crtos link destroy plant

crtos cell start left $inmate || fail 'start'
python3 linux.py play >found || fail 'the program of Linux'
cat >expected <<'X'
magic True
header EACCES
table EACCES
foreign EACCES
all EACCES
twice EBUSY
ring 0 EINVAL
ring 3 EINVAL
ring 2147483648 EINVAL
answerer True
answers 200
X
diff expected found || fail 'Linux and a cell'
[ "$(peer 0)" = 0 ] || fail 'Linux is still there'

# Cell to cell: each round is a doorbell there and one back.
crtos cell start right $inmate --command-line 'serve=1 rounds=20000' || fail 'start'
await '[ "$(peer 2)" = 2 ]' 600 || fail "the cells do not play: $(peer 1) $(peer 2)"
crtos log | grep 'link: 20000 rounds' || fail 'no rounds'

# One that stops, one that starts again, one that fails.
python3 linux.py gone 1 >gone & program=$!
await 'grep -q there gone' 100 || fail 'nobody is there'
crtos cell stop left || fail stop
wait $program
grep -q 'gone True' gone || fail "a stop: $(cat gone)"
crtos cell start left $inmate || fail 'start again'
await '[ "$(peer 1)" = 1 ]' 100 || fail 'it is not there again'
crtos cell stop right
for what in foreign table header beyond; do
	python3 linux.py gone 2 >gone & program=$!
	sleep 0.5
	crtos cell start right $inmate --command-line "attack=$what" || fail "start of $what"
	await '[ "$(state right)" = failed ]' 100 || fail "$what: $(state right)"
	await '[ "$(peer 2)" = 0 ]' 100 || fail "$what: it is not seen as gone"
	kill $program 2>/dev/null
	wait $program 2>/dev/null
done
[ "$(state left)" = running ] || fail 'the other cell was stopped as well'

# It rings those it is linked with alone.
crtos cell create stranger --cpus 1 || fail 'a third cell'
crtos cell start stranger $inmate
crtos cell start right $inmate --command-line 'attack=strange' || fail 'start of strange'
await 'crtos log | grep -q "link: rang"' 100
crtos log | grep 'link: rang'
crtos log | grep -q 'link: rang 1 cells' || fail 'it rings others'

# A program that is killed, and commands that are.
python3 linux.py gone 1 >gone & program=$!
await 'grep -q there gone' 100
refused 'are peers of' crtos link destroy plant
kill -KILL $program
wait $program 2>/dev/null
crtos cell destroy stranger && crtos cell destroy left && crtos cell destroy right || fail destroy
crtos link destroy plant || fail 'the link stays'
[ ! -e /dev/crtos-shm/plant ] || fail 'the file stays'
for pause in 0 0.005 0.01 0.02 0.05 0.1; do
	crtos link create brief --common 8M & program=$!
	sleep $pause
	kill -KILL $program 2>/dev/null
	wait $program 2>/dev/null
	# Killed when it was done, it has kept it.
	[ ! -e /dev/crtos-shm/brief ] || crtos link destroy brief || fail "a kill after $pause s"
	[ "$(crtos link list)" = '' ] || fail "something is left after $pause s"
done
crtos down 2>/dev/null
complaints | grep . && fail 'Linux complains'
exit $failed
