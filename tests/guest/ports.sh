#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# I/O ports are to programs of the realm what they are under Linux: tests/abi/ports.c runs under
# Linux, and then in the realm, which has the ports alone. What it does not have stays Linux's.
# The realm gets them when it starts, or while it runs; then it gives them back if nobody uses them.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# parallel: yes
# uses: alike devices
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
program=/usr/lib/crtos-tests/abi/ports
natively 60 $program
# A driver of Linux would fault at them.
crtos up --cpus 3 --memory 256M --port 0x40-0x43:exclusive 2>why && fail 'the timer of Linux is taken'
grep -q 'uses one of the ports 0x40-0x43: .*/proc/ioports.*(timer0 has 0x40-0x43' why || fail "$(cat why)"
grep -q 'crtos explain ports-in-use' why || fail "no code: $(cat why)"
grep crtos /proc/ioports && fail 'they stay reserved'
crtos up --cpus 3 --memory 256M --port 0x378-0x37b:exclusive --port 0x37e-0x37f || exit 1
alike 100 $program
# A transfer ends where the realm's ports do.
count=$(crtos run -- dd if=/dev/port bs=16 skip=$((0x37)) count=1 status=none 2>why | wc -c)
[ "$count" = 0 ] && grep -q 'not permitted' why || fail "a port of Linux: $count, $(cat why)"
crtos run -- python3 -c "
import os
file = os.open('/dev/port', os.O_RDWR)
print(len(os.pread(file, 16, 0x379)), len(os.pread(file, 16, 0x37e)))
for port in 0x37c, 0x70, 0xffff:
    try: os.pread(file, 1, port)
    except PermissionError: print('not permitted')
" >got
printf '3 2\nnot permitted\nnot permitted\nnot permitted\n' | diff - got || fail 'the ends'
crtos down || fail 'down'

# Without ports of the realm, the file is Linux's.
crtos up --cpus 3 --memory 256M || exit 1
crtos run -- dd if=/dev/port bs=1 skip=$((0x64)) count=1 status=none of=got || fail 'remotely'
[ "$(wc -c <got)" = 1 ] || fail 'remotely, nothing'

# While it runs: refused where somebody has them.
dmesg --clear
reserved() { grep -c "$1 : crtos" /proc/ioports; }
refused() {
	crtos device add "$1" 2>why && fail "$1 is given"
	grep -q "$2" why || fail "$1: $(cat why)"
}
refused 0x40-0x43 'uses one of the ports'
refused 0xcf8-0xcff 'uses one of the ports'
refused 0x37f-0x378 'runs backwards'
refused 0x10000 'at most 0xffff'
refused 378-888 'in hexadecimal'
if modprobe -q parport_pc 2>/dev/null && grep -q parport0 /proc/ioports; then
	refused 0x378-0x37b 'parport0 has 0x378-0x37a'
	modprobe -r parport_pc
fi
crtos device add 0x378-0x37b && crtos device add 0x37e-0x37f || fail 'not given'
refused 0x378-0x37b 'crtos device remove 0x378-0x37b'
refused 0x37a-0x37f 'uses one of the ports'
[ "$(listed)" = '[["0x378-0x37b","ports","realtime"],["0x37e-0x37f","ports","realtime"]]' ] ||
	fail "list: $(crtos device list)"
crtos device list
alike 100 $program
# Who may use them keeps them, however it came by that.
cat >uses.py <<'PY'
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
if sys.argv[1] == "file": os.open("/dev/port", os.O_RDWR)
elif sys.argv[1] == "all": assert not libc.iopl(3)
else: assert not libc.ioperm(0x37a, 1, 1)
if os.fork() == 0: time.sleep(100)
print("has them", flush=True)
time.sleep(100)
PY
for how in file all one; do
	rm -f said
	crtos run -- python3 uses.py $how >said &
	await 'grep -qs has said'
	crtos device remove 0x378-0x37b 2>why && fail "$how: taken from a program"
	grep -q "open: .*python3.*, .*python3" why || fail "$how: $(cat why)"
	pkill -KILL -x python3
	wait $!
	await 'crtos device remove 0x378-0x37b 2>why' 100 || fail "$how: $(cat why)"
	[ "$(reserved 0378-037b)" = 0 ] || fail "$how: Linux does not have them back"
	dd if=/dev/port bs=1 skip=$((0x378)) count=1 status=none of=got || fail "$how: Linux cannot"
	crtos run -- dd if=/dev/port bs=1 skip=$((0x378)) count=1 status=none 2>why &&
		fail "$how: the realm has them still"
	grep -q 'not permitted' why || fail "$how: $(cat why)"
	crtos device add 0x378-0x37b || fail "$how: not again"
	[ "$(reserved 0378-037b)" = 1 ] || fail "$how: Linux may use them"
done
# killed VERB: the command is killed, it is one or the other, and the next one does it.
killed() {
	crtos device "$1" 0x378-0x37b &
	sleep $round
	kill -KILL $!
	wait $!
	crtos device "$1" 0x378-0x37b 2>/dev/null
}
for round in 0.005 0.01 0.02 0.03 0.05 0.08 0.1; do
	killed remove
	[ "$(reserved 0378-037b)" = 0 ] || fail "kill $round: not taken back"
	killed add
	[ "$(reserved 0378-037b)" = 1 ] || fail "kill $round: not given"
	crtos run -- dd if=/dev/port bs=1 skip=$((0x378)) count=1 status=none of=got ||
		fail "kill $round: the realm cannot"
done 2>/dev/null
crtos down || fail 'down'
[ "$(grep -c crtos /proc/ioports)" = 0 ] || fail "afterwards: $(grep crtos /proc/ioports)"

# What it was started with stays until then.
crtos up --cpus 3 --memory 256M --port 0x378-0x37f:exclusive || exit 1
[ "$(listed)" = '[["0x378-0x37f","ports","realtime"]]' ] || fail "list: $(crtos device list)"
crtos device remove 0x378-0x37f 2>why && fail 'taken from the start'
grep -q 'was started with' why || fail "$(cat why)"
refused 0x37a-0x37b 'uses one of the ports'
crtos down || fail 'down'
complaints | grep -v 'AMD Zen1' | grep . && fail dmesg
exit $failed
