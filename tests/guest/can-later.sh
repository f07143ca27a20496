#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A CAN interface comes to the realm while that runs, and goes: Debian's programs use it in between,
# and Linux before and afterwards, with the settings that it had. What somebody uses is refused by
# either side, with who does. A command that is killed leaves what the next one mends.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# can: yes
# packages: can-utils,python3-can
# uses: devices can
# full: ROUNDS=100
# tier: full
# timeout: 1200
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
can0='[["can0","can","realtime"]]'
told() {
	ip -json -details link show can0 |
		gojq -c '.[0] | [.txqlen, .linkinfo.info_data.restart_ms, .linkinfo.info_data.bittiming]'
}
# passes WHEN COMMAND...: the command sends a frame that comes at the other end.
passes() {
	local when=$1
	shift
	timeout 60 candump -n 1 can1 >heard 2>&1 &
	listens can1
	"$@" || fail "$when: status $?"
	wait $!
	grep -q '123   \[4\]  DE AD BE EF' heard || fail "$when: $(cat heard)"
}
by_linux() {
	ip link set can0 up
	passes "$1" cansend can0 123#DEADBEEF
	ip link set can0 down
}
by_realm() { passes "$1" crtos run -- cansend can0 123#DEADBEEF; }

modprobe -a kvaser_pci can_raw can_bcm || exit 1
await '[ -e /sys/class/net/can1 ]' || exit 1
for name in can0 can1; do ip link set $name type can bitrate 250000 restart-ms 100 || exit 1; done
ip link set can0 txqueuelen 20
ip link set can1 up
before=$(told)
card=$(basename "$(readlink -f /sys/class/net/can0/device)")
enabled=$(cat "/sys/bus/pci/devices/$card/enable")
by_linux before
crtos up --cpus 3 --memory 256M || exit 1
dmesg --clear

# What somebody uses.
ip link set can0 up
refused 'can0 is up' crtos device add can0
ip link set can0 down
candump -D can0 >/dev/null 2>&1 &
user=$!
listens can0
refused 'programs receive from it' crtos device add can0
kill $user; wait $user 2>/dev/null
# The kernel itself passes frames on.
modprobe can_gw && cangw -A -s can0 -d can1 -e || fail 'no route'
refused 'cangw -F' crtos device add can0
cangw -F || fail 'the route stays'
# A program of the realm has Linux's socket, which stays Linux's.
crtos run -- python3 - <<'PY' >said 2>&1 &
import socket, time
bus = socket.socket(socket.AF_CAN, socket.SOCK_RAW, socket.CAN_RAW)
bus.setsockopt(socket.SOL_CAN_RAW, socket.CAN_RAW_FILTER, b'')
bus.bind(('can0',))
print('bound', flush=True)
while True:
    try:
        bus.send(bytes(16))
    except OSError as error:
        if error.errno not in (100, 105):
            print('fails', error.errno, flush=True)
            break
    time.sleep(0.05)
PY
program=$!
await 'grep -q bound said' || fail "a socket of Linux's: $(cat said)"
[ "$(listed)" = '[]' ] || fail "list: $(listed)"

# It comes.
crtos device add can0 || fail 'not given'
wait $program
# ENODEV, or ENXIO for a number that no interface has.
grep -q 'fails \(19\|6\)$' said || fail "a socket of Linux's: $(cat said)"
crtos log | grep -q 'can0: .* 250000 bit/s, interrupts$' || fail "log: $(crtos log | grep can0)"
crtos device list
[ "$(listed)" = "$can0" ] || fail "list: $(listed)"
refused 'has it already' crtos device add can0
[ ! -e /sys/class/net/can0 ] || fail 'Linux has can0'
by_realm 'when it has come'
await 'crtos stats | grep -q "^can0  *[1-9]"' 50 || fail "stats: $(crtos stats --json)"
(timeout 60 candump -L -n 20 can1 | wc -l >count) &
listens can1
crtos run -- cangen can0 -n 20 -g 5 || fail "cangen: status $?"
wait $!
[ "$(cat count)" = 20 ] || fail "of 20 frames $(cat count) come"
(candump_waits; cansend can1 321#0102) &
timeout 60 crtos run -- candump -n 1 can0 >came || fail "candump: status $?"
grep -q '321   \[2\]  01 02' came || fail "candump: $(cat came)"

# Who has it open keeps it.
uses() {
	crtos run -- "$@" can0 >came 2>/dev/null &
	program=$!
}
kept() {
	refused "have can0 open: .*$1" crtos device remove can0
	kill $program; wait $program 2>/dev/null
	await "! crtos ps | grep -q $1"
	[ "$(listed)" = "$can0" ] || fail "$1: $(listed)"
}
cangen can1 -g 50 &
peer=$!
uses candump
await '[ -s came ]' 300 || fail 'candump hears nothing'
kill $peer; wait $peer 2>/dev/null
kept candump
timeout 60 candump -n 1 can1 >/dev/null &
hears=$!
listens can1
uses cangen -g 100
wait $hears || fail 'cangen sends nothing'
kept cangen
# One that hears all interfaces does not have this one.
crtos run -- candump any >/dev/null 2>&1 &
program=$!
await 'crtos ps | grep -q candump'
sleep 1
crtos device remove can0 || fail 'not taken back from who hears all'
kill $program; wait $program 2>/dev/null
[ "$(listed)" = '[]' ] || fail "list: $(listed)"
[ "$(told)" = "$before" ] || fail "afterwards $(told), before $before"
[ "$(cat "/sys/bus/pci/devices/$card/enable")" = "$enabled" ] || fail 'it is enabled otherwise'
grep -q crtos /proc/ioports && fail "ports: $(grep crtos /proc/ioports)"
by_linux 'when it is back'
# A program of the realm has Linux's then.
ip link set can0 up
by_realm 'of Linux, in the realm'
ip link set can0 down

# Killed commands, and programs.
is_back() {
	await '[ -e /sys/class/net/can0 ]' 100
	[ "$(told)" = "$before" ] || fail "$1: $(told)"
	[ "$(cat "/sys/bus/pci/devices/$card/enable")" = "$enabled" ] || fail "$1: enabled"
}
survives_kills "${ROUNDS:-5}" 200 can0 "$can0" 'no cell has it' cangen can0 -g 2
by_linux 'after kills'

# It goes with the realm, also with a program that uses it.
crtos device add can0 || fail 'not given again'
crtos run -- cangen can0 -g 2 &
program=$!
await 'crtos ps | grep -q cangen'
crtos down --force || fail down
wait $program
[ "$(told)" = "$before" ] || fail "after down $(told), before $before"
by_linux 'after down'

# A locked realm keeps what it has.
crtos up --cpus 3 --memory 256M --locked || exit 1
refused locked crtos device add can0
by_linux 'beside a locked realm'
crtos down || fail down
ip link set can1 down
complaints | grep -v 'AMD Zen1' | grep . && fail dmesg
exit $failed
