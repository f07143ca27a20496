#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux takes a UART and a CAN controller away that programs of the realm use, their ports or their
# lines first, and says nothing. The realm goes on. When it learns of it, programs are told what
# Linux tells of a serial line that is hung up and of an interface that is gone. Both come back, and
# can be given again.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# uarts: isa
# can: yes
# packages: can-utils
# tier: full
# timeout: 600
# uses: can
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
REMOVE=17 LINE_REMOVE=26 first=$((0xffff)) second=$((0xfffe))
modprobe -a kvaser_pci can_raw can_bcm || exit 1
await '[ -e /sys/class/net/can1 ]' || exit 1
for name in can0 can1; do ip link set $name type can bitrate 250000 || exit 1; done
ip link set can1 up
attacker || exit 1
crtos up --cpus 3 --memory 256M || exit 1
crtos run -- python3 -c 0
dmesg --clear
starts_waking
waker=$program

# A program that uses both, and says how they end.
cat >uses.py <<'PY'
import os, select, socket, threading, time
def says(what):
    os.write(1, (what + "\n").encode())
line = os.open("/dev/ttyS1", os.O_RDWR)
bus = socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW)
bus.bind(("can0",))
def reads():
    while os.read(line, 100): pass
    says("read ends")
def receives():
    try:
        while True: bus.recv(16)
    except OSError as error:
        says("receive fails %d" % error.errno)
def sends():
    while True:
        try:
            bus.send(bytes(16))
        except OSError as error:
            if error.errno not in (100, 105):
                says("send fails %d" % error.errno)
                return
        time.sleep(0.01)
all = [threading.Thread(target=one) for one in (reads, receives, sends)]
for one in all: one.start()
says("uses both")
for one in all: one.join()
try:
    os.write(line, b"x")
except OSError as error:
    says("write fails %d" % error.errno)
poll = select.poll()
poll.register(line)
says("poll %x" % poll.poll(0)[0][1])
PY
cell=$(crtos cell list --json | gojq '.[] | select(.name == "realtime") | .cell')
for round in ports lines; do
	crtos device add ttyS1 && crtos device add can0 || fail "$round: not given"
	can_line=$(crtos log | sed -n 's/.*has line \([0-9]*\), pin.*/\1/p' | tail -n 1)
	crtos run -- python3 uses.py >said 2>&1 &
	program=$!
	await 'grep -q both said' || fail "$round: $(cat said)"
	cangen can1 -g 5 & peer=$!
	sleep 1
	if [ $round = lines ]; then
		hypercall 0 $LINE_REMOVE "$cell" 3 0 0
		hypercall 0 $LINE_REMOVE "$cell" "$can_line" 0 0
		printf 'more\n' >/dev/ttyS2
		sleep 1
		goes_on $program 'lines are gone'
	fi
	hypercall 0 $REMOVE "$cell" $first 0 0
	hypercall 0 $REMOVE "$cell" $second 0 0
	sleep 1
	goes_on $program 'ports are gone'
	[ "$(there)" = there ] || fail "$round: the realm does not go on"
	# The realm's kernel looks when Linux asks anything of it about devices.
	crtos device add 0x300-0x307 || fail "$round: a range of ports"
	crtos device remove 0x300-0x307 || fail "$round: no range of ports"
	await '! [ -d /proc/$program ]' 100 || fail "$round: the program does not end"
	wait $program
	kill $peer; wait $peer 2>/dev/null
	sort said >ends
	# ENODEV or ENXIO; EIO; all events and those of an end.
	for end in 'read ends' 'receive fails 19' 'send fails \(6\|19\)' 'write fails 5' 'poll 1d'; do
		grep -qx "$end" ends || fail "$round: no '$end' in $(tr '\n' ';' <ends)"
	done
	crtos log | tail -n 20 | grep -q 'ttyS1: lost' || fail "$round: $(crtos log | tail)"
	crtos log | tail -n 20 | grep -q 'can0: lost' || fail "$round: $(crtos log | tail)"
	crtos device remove ttyS1 && crtos device remove can0 || fail "$round: not taken back"
	goes_on $waker "$round"
done
program=$waker
wakes_on
crtos device add ttyS1 && crtos device add can0 || fail 'not given again'
timeout 60 candump -n 1 can1 >heard 2>&1 &
listens can1
crtos run -- cansend can0 123#AB || fail cansend
wait $!
grep -q AB heard || fail "nothing comes: $(cat heard)"
crtos down || fail down
stty -F /dev/ttyS1 raw -echo 115200 || fail 'Linux does not get the UART back'
rmmod attack
complaints | grep -v DMAR | grep . && fail dmesg
exit $failed
