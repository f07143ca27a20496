#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's programs for CAN do in the realm, on an interface that the realm has, what they do under
# Linux. The other end of the bus is an interface of Linux. The realm's interface is taken and given
# back, also when a command is killed; an interface of Linux that a program of the realm names stays
# Linux's.
# kernels: 6.1
# realm: no
# shared: yes
# can: yes
# packages: can-utils,python3-can
# full: ROUNDS=9
# timeout: 600
# uses: can
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe -a kvaser_pci vcan can_raw can_bcm || exit 1
await '[ -e /sys/class/net/can1 ]' || exit 1
run=(timeout 30)
up=(crtos up --cpus 3 --memory 256M --device can0)

# hear COUNT COMMAND...: what the other end hears of a program, and how that ends.
hear() {
	local count=$1 listener
	shift
	timeout 20 candump -L -n "$count" can1 2>&1 | sed 's/^([^)]*) //' >heard &
	listener=$!
	listens can1
	"${run[@]}" "$@"
	echo "status $?"
	wait $listener
	cat heard
}
# later FRAME...: the other end sends frames when candump waits.
later() { (candump_waits; for frame; do cansend can1 "$frame"; done) & }

programs() {
	echo '== cansend'
	hear 1 cansend can0 123#DEADBEEF
	hear 1 cansend can0 1F334455#1122334455667788
	hear 1 cansend can0 5A1#R
	"${run[@]}" cansend can0 123##1AABB; echo "status $?"
	"${run[@]}" cansend can7 123#00; echo "status $?"

	echo '== candump'
	later 111#01 222#0202
	"${run[@]}" candump -n 2 can0; echo "status $?"
	later 111#01 223#02 224#03
	"${run[@]}" candump -L -n 1 can0,224:7FF | sed 's/^([^)]*) //'
	later 111#01 12345678#02
	"${run[@]}" candump -x -n 1 'can0,92345678:DFFFFFFF'; echo "status $?"
	later 321#0102
	# Under Linux that is the sender's interface or the receiver's, whichever is first.
	"${run[@]}" candump -t d -a -n 1 any | sed 's/([^)]*)//; s/can[01]/can/'
	"${run[@]}" candump -T 300 can0; echo "status $?"

	echo '== cangen, cansequence'
	hear 20 cangen can0 -n 20 -g 5 -I i -L i -D i
	(timeout 25 cansequence -r can1 -q 1 >sequence 2>&1; echo "status $?" >>sequence) &
	listens can1
	"${run[@]}" cansequence can0 --loop=50 -p; echo "status $?"
	kill %% 2>/dev/null
	wait

	echo '== canbusload'
	"${run[@]}" timeout -s INT 2 canbusload can0@500000 >busload
	grep -q can0@500000 busload
	echo "status $?"

	echo '== python3-can'
	hear 8 python3 - <<'PY'
import can, time
with can.Bus('can0', interface='socketcan') as bus:
    print(bus.channel_info)
    bus.send(can.Message(arbitration_id=0x7, data=[1, 2], is_extended_id=False))
    task = bus.send_periodic(can.Message(arbitration_id=0x8, data=[3], is_extended_id=False), 0.05)
    time.sleep(0.18)
    task.modify_data(can.Message(arbitration_id=0x8, data=[4], is_extended_id=False))
    time.sleep(0.3)
    task.stop()
    heard = bus.recv(0)
    print(heard.arbitration_id, heard.data, heard.is_rx)
PY
}

for name in can0 can1; do
	ip link set $name type can bitrate 250000 restart-ms 100 && ip link set $name up || exit 1
done
programs >linux.out 2>linux.err

ip link set can0 down
"${up[@]}" || exit 1
crtos log | grep 'can0: '
crtos log | grep -q 'can0: .* 250000 bit/s, interrupts' || fail "can0: $(crtos log | grep can0)"
[ ! -e /sys/class/net/can0 ] || fail 'Linux has can0'
run=(timeout 40 crtos run --)
programs >realm.out 2>realm.err
# A cyclic frame's last data depend on the moment.
filter() { grep -v -e '^can1 008#' "$1"; }
cat realm.out
diff <(filter linux.out) <(filter realm.out) || fail 'Linux and the realm differ'
diff linux.err realm.err || fail 'complaints differ'

# An interface of Linux that a program names stays Linux's.
ip link add dev vcan0 type vcan || fail vcan
ip link set vcan0 up || fail vcan
timeout 20 candump -n 1 vcan0 >heard &
listener=$!
listens vcan0
"${run[@]}" cansend vcan0 7FF#AA || fail 'cansend to Linux'
wait $listener
grep -q '7FF   \[1\]  AA' heard || fail "vcan0: $(cat heard)"

# Programs that are killed leave nothing; with --full, they are more than there is room for.
for ((round = 0; round < ${ROUNDS:-2}; round++)); do
	"${run[@]}" sh -c 'for i in 1 2 3 4 5 6 7 8; do candump can0 >/dev/null & done; wait' &
	program=$!
	await 'crtos ps | grep -c candump | grep -qx 8' || fail "round $round"
	pkill -KILL candump
	wait $program
	await '! crtos ps | grep -q candump' || fail 'programs do not end'
done
later 111#77
"${run[@]}" candump -n 1 can0 | grep -q '111   \[1\]  77' || fail 'after killed programs'
crtos down || exit 1

told() {
	ip -json -details link show can0 |
		gojq -c '.[0].linkinfo.info_data | [.bittiming.bitrate, .restart_ms]'
}
[ "$(told)" = '[250000,100]' ] || fail "afterwards: $(told)"
ip link set can0 up
run=(timeout 30)
hear 1 cansend can0 123#DEADBEEF | grep -q 'can1 123#DEADBEEF' || fail 'Linux cannot use it'

# What is refused, and a command that is killed.
candump can0 >/dev/null &
user=$!
listens can0
"${up[@]}" 2>why && fail 'one that programs use is taken'
grep -q 'programs receive from it' why || fail "$(cat why)"
kill $user; wait $user 2>/dev/null
crtos up --cpus 3 --memory 256M --device vcan0 2>why && fail 'vcan0 is taken'
grep -q 'its driver is' why || fail "$(cat why)"
"${up[@]}" --dry-run | grep -q 'would take can0' || fail rehearsal
for delay in 0.3 0.8; do
	"${up[@]}" &
	command=$!
	sleep $delay
	kill -9 $command 2>/dev/null
	wait $command 2>/dev/null
	crtos down 2>/dev/null
	await '[ -e /sys/class/net/can0 ]' 100 || fail "after a kill in $delay s"
done
[ "$(told)" = '[250000,100]' ] || fail "after kills: $(told)"
ip link set can0 down
ip link set can1 down
ip link delete vcan0
exit $failed
