#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The real-time realm as a peer of a link with hostile others: Linux's kernel forges the header
# before the realm starts and while it has the link, Linux's program and a cell ring without end and
# write anything into their pages while a program keeps its period, who polls is killed, and the
# realm goes down while its link is mapped.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# shared: yes
# timeout: 1200
# uses: link
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
inmate=/usr/lib/crtos/inmates/link.elf
program=$PROGRAMS/link-latency
path=/dev/crtos-shm/plant
modprobe crtos && attacker || exit 1
dmesg --clear
in_memory crtos "$program" "$PROGRAMS/periodic" python3 gojq chrt taskset
echo -1 >/proc/sys/kernel/sched_rt_runtime_us

cat >peer.py <<'P'
import errno, mmap, os, select, struct, sys, time
what = sys.argv[1]
file = os.open('/dev/crtos-shm/plant', os.O_RDWR)
if what == 'where':
    header = mmap.mmap(file, 4096, prot=mmap.PROT_READ)
    header[0]
    maps = open('/proc/self/maps')
    at = next(int(line.split('-')[0], 16) for line in maps if 'crtos-shm' in line)
    with open('/proc/self/pagemap', 'rb', buffering=0) as pages:
        pages.seek(at // 4096 * 8)
        print((struct.unpack('<Q', pages.read(8))[0] & (1 << 55) - 1) * 4096)
elif what == 'use':
    try:
        mmap.mmap(file, 4096, prot=mmap.PROT_READ)
        print('mapped')
    except OSError as error:
        print(errno.errorcode[error.errno])
elif what == 'poll':
    # Answers Linux's program, as an ordinary thread.
    own = mmap.mmap(file, 4096, offset=2 * 4096)
    start = 4 * 4096 + 65536
    theirs = mmap.mmap(file, 16384, prot=mmap.PROT_READ, offset=start)
    mine = mmap.mmap(file, 16384, offset=start + 16384)
    struct.pack_into('<I', own, 0, 1)
    poll = select.poll()
    poll.register(file, select.POLLIN)
    while True:
        poll.poll()
        os.read(file, 4)
        number = struct.unpack_from('<Q', theirs)[0]
        if number != struct.unpack_from('<Q', mine)[0]:
            struct.pack_into('<Q', mine, 0, number)
            os.write(file, struct.pack('<I', 0))
elif what == 'storm':
    own = mmap.mmap(file, 4096, offset=4096)
    end, rings = time.monotonic() + 0.15, 0
    while time.monotonic() < end:
        # The index of a CPU that is none, and counts that go anywhere.
        struct.pack_into('<II', own, 0, rings, 0xffffffff - rings)
        struct.pack_into('<I', own, 8 + 4 * (rings % 8), rings * 0x9e3779b9 & 0xffffffff)
        os.write(file, struct.pack('<I', 1))
        rings += 1
    print('Linux rang', rings)
    sys.exit(rings < 100)
P

crtos link create plant --peers 3 || exit 1
header=$(python3 peer.py where)
# forge OFFSET VALUE: eight bytes of the header, which the script has set right by `mend`.
forge() { [ "$(attack dma poke $((header + $1)) "$2")" = 0 ] || fail "forge $1 $2"; }
for offset in 0 8 16 24; do right[offset]=$(attack dma peek $((header + offset))); done
mend() { for offset in 0 8 16 24; do forge $offset "${right[offset]}"; done; }
[ "${right[0]}" = 0x314b4c534f545243 ] || fail "no header at $header: ${right[0]}"

# Before the realm starts: it has no such link, and all else.
for forged in '8 0x900000001' '16 0xfffffffffffff000' '24 0x7ffffffffffff000'; do
	# shellcheck disable=SC2086 # two words
	forge $forged
	crtos up --cpus 3 --memory 256M --link plant:1 || fail "$forged: up"
	[ "$(there)" = there ] || fail "$forged: the realm does not run"
	[ "$(crtos run python3 peer.py use)" = EIO ] || fail "$forged: it has the link"
	crtos down || fail "$forged: down"
	mend
done

crtos cell create right --cpus 2 --memory 4M --link plant:2 || exit 1
crtos up --cpus 3 --memory 256M --link plant:1 || exit 1
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
crtos run python3 peer.py poll & waiter=$!
await '[ "$(peer 1)" = 1 ]' 100 || fail 'nobody polls'

# Sizes that are other ones from now on change nothing, and peers that ring cost their share.
forge 8 0xffffffff00000000
forge 16 0xfffffffffffff000
forge 24 0xfffffffffffff000
storm() { taskset -c 1 python3 peer.py storm; }
keeps_period 20000 storm || fail 'Linux that rings takes the period away'
mend
crtos cell start right $inmate --command-line 'attack=flood' || fail 'start of a flood'
await '[ "$(peer 2)" = 1 ]' 100 || fail 'no flood'
keeps_period 20000 sleep 0.1 || fail 'a cell that rings takes the period away'
crtos cell stop right || fail 'stop of a flood'

# The link works as ever.
timeout 100 "$program" $path 0 serve 50 1 >/dev/null || fail 'no answers afterwards'

# Who polls is killed, and is seen as gone; the next one has the link, until the realm goes.
kill -KILL $waiter
wait $waiter
await '[ "$(peer 1)" = 0 ]' 100 || fail 'who was killed is still there'
crtos run python3 peer.py poll & waiter=$!
await '[ "$(peer 1)" = 1 ]' 100 || fail 'nobody polls again'
crtos log | grep -i 'died\|panic' && fail 'something died'
crtos down 2>/dev/null && fail 'down while a program polls'
# It ends the cell as well.
crtos down --force || fail 'down while the link is mapped'
wait $waiter
[ "$(peer 1)" = 0 ] || fail 'a realm that is down is still there'
crtos link destroy plant || fail 'the link stays'
echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
rmmod attack
complaints | grep . && fail 'Linux complains'
exit $failed
