#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Devices of all kinds come to the realm, are used and go back, many times: a UART, a CAN interface,
# PCI functions that the kernel and programs drive, by VFIO and by UIO, a platform device, I/O
# ports, and a network card, in turn as a function of UIO and as an interface. Then the same with
# kills at random moments, of programs and of commands, while Linux does what it likes with its
# drivers, and the machine loses devices and finds them again. Afterwards Linux uses each of them,
# and complains of nothing.
# kernels: 6.12
# realm: no
# uarts: isa
# can: yes
# devices: yes
# packages: can-utils,pciutils,arping
# uses: edu vfio devices can
# full: ROUNDS=100
# timeout: 3000
set -u
: "${edu:=}" "${edus:=}"
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
rounds=${ROUNDS:-2}
RANDOM=${SEED:-3}
bus=/sys/bus/pci/devices
modprobe -a crtos e1000e kvaser_pci can_raw uio || exit 1
await '[ -e /sys/class/net/can1 ]' || exit 1
mapfile -t cards < <(grep -lx 0x10d3 $bus/*/device | cut -d/ -f6)
mapfile -t cans < <(grep -lx 0x8406 $bus/*/device | cut -d/ -f6)
card=${cards[0]} can=${cans[0]}
# The UART, as a device of its bus.
line=$(readlink -f /sys/class/tty/ttyS1)
uart=$(for one in /sys/bus/pnp/devices/*; do
	[[ $line = $(readlink -f "$one")/* ]] && basename "$one"
done)
# Ports of nothing, which read as ones.
ports=0x300-0x307
testdev=$(lspci -Dnd 1b36:0005 | cut -d' ' -f1)
# A platform device, of the registers of that function whose interrupt is its own; programs drive
# the other one.
platform=crtos-test part=$edu edu=${edus[0]}
find_platform() {
	insmod "/usr/lib/crtos-tests/attack/$(uname -r)/platform.ko" function="$part"
}
programs=/usr/lib/crtos-tests/abi
export FUNCTION=$edu
copies="$programs/vfio the_device_copies_to_and_from_memory"
interrupts="$programs/platform registers_answer each_interrupt_counts"
# name_of FUNCTION: the network interface that Linux has there.
name_of() { ls "$bus/$1/net" 2>/dev/null; }
node_of() { local found; found=$(ls "$bus/$1/uio" 2>/dev/null) && echo "/dev/$found"; }

# The other ends: a card in a world of its own, a controller, and ttyS2.
peer=$(name_of "${cards[1]}")
ip netns add end
ip link set "$peer" netns end
ip -n end address add 10.0.0.2/24 dev "$peer"
ip -n end link set "$peer" up
set_up() { ip link set "$1" type can bitrate 500000 && ip link set "$1" up; }
for function in "${cans[@]}"; do set_up "$(name_of "$function")" || exit 1; done
drives_by_vfio "$edu" && find_platform || exit 1
dmesg --clear

# linux_uses WHEN: each device works under Linux.
linux_uses() {
	local name own
	for name in 1 2; do stty -F /dev/ttyS$name raw -echo 115200 || fail "$1: no ttyS$name"; done
	timeout 0.5 cat </dev/ttyS2 >/dev/null
	timeout 10 head -c 5 </dev/ttyS2 >got &
	sleep 0.3
	printf works >/dev/ttyS1
	wait $!
	[ "$(cat got)" = works ] || fail "$1: the serial line tells $(cat got)"

	name=$(name_of "${cans[1]}") own=$(name_of "$can")
	timeout 10 candump -n 1 "$name" >got &
	listens "$name"
	cansend "$own" 123#AB || fail "$1: cansend"
	wait $!
	grep -q AB got || fail "$1: nothing comes by CAN from $own to $name"

	name=$(name_of "$card")
	ip address replace 10.0.0.1/24 dev "$name" || fail "$1: no card"
	ip link set "$name" up || fail "$1: the card is down"
	await 'busybox ping -q -c 1 -W 1 10.0.0.2 >/dev/null' 20 || fail "$1: no packets"
	# One that is up is not taken.
	ip link set "$name" down

	timeout 60 sh -c "$copies" >told || fail "$1: VFIO: $(cat told)"
	timeout 60 sh -c "$interrupts" >told || fail "$1: the platform device: $(cat told)"
}
# in_turn ROUND: how the card comes: as an interface, which is up then, or not.
in_turn() {
	interface=
	(($1 % 2)) || return
	interface=$(name_of "$card")
	ip address replace 10.0.0.1/24 dev "$interface" && ip link set "$interface" up
}
# takes: a realm starts that has all of them.
takes() {
	crtos up --cpus 3 --memory 192M --device ttyS1 --device "$(name_of "$can")" \
		${interface:+--device "$interface"} &&
		{ [ -n "$interface" ] || crtos device add "$card"; } &&
		crtos device add "$edu" --no-reset && crtos device add "$testdev" --no-reset &&
		crtos device add $platform && crtos device add $ports
}
# What programs do with the card.
drive_card() {
	if [ -n "$interface" ]; then
		echo "arping -q -c 1 -I $interface 10.0.0.2"
	else
		echo "$PROGRAMS/uio-e1000e $(node_of "$card")"
	fi
}
# realm_uses WHEN: programs of the realm have each of them do something.
realm_uses() {
	local own=can0
	own=$(crtos log | grep -o 'can[01]: SJA1000' | tail -n 1 | cut -d: -f1)
	timeout 20 head -c 5 </dev/ttyS2 >serial &
	timeout 20 candump -n 1 "$(name_of "${cans[1]}")" >frames &
	await '[ -n "$interface" ] || [ -c "$(node_of "$card")" ]' || fail "$1: no file"
	await '[ -c "$(node_of "$testdev")" ]' || fail "$1: no file of the test's device"
	timeout 60 crtos run -- sh -c "stty -F /dev/ttyS1 raw -echo 115200
		printf realm >/dev/ttyS1; cansend $own 321#CD; cat $(node_of "$testdev") >&2
		$copies >copied 2>&1 && $interrupts >interrupted 2>&1 && exec $(drive_card)" >told 2>report ||
		fail "$1: status $?: $(cat copied interrupted)"
	[ -n "$interface" ] || [ "$(cat told)" = 10 ] || fail "$1: the card interrupts $(cat told) times"
	[ "$(wc -l <report)" = 3 ] || fail "$1: $(cat report)"
	[ "$(crtos run -- dd if=/dev/port bs=8 skip=$((0x60)) count=1 status=none | od -An -tx1)" = \
		"$(printf ' ff%.0s' {1..8})" ] || fail "$1: no ports"
	wait
	[ "$(cat serial)" = realm ] || fail "$1: the serial line tells $(cat serial)"
	grep -q CD frames || fail "$1: nothing comes by CAN"
}
# has_back WHEN: Linux has all of them.
has_back() {
	await '[ -n "$(name_of "$card")" ] && [ -n "$(name_of "$can")" ]' 300 ||
		fail "$1: $(ls -l "$bus/$card/driver" "$bus/$can/driver" 2>&1)"
	! grep -q crtos /proc/ioports || fail "$1: $(grep crtos /proc/ioports)"
	[ "$(driver "$edu")" = vfio-pci ] || fail "$1: $(driver "$edu") has $edu"
	[ ! -e "$bus/$testdev/driver" ] || fail "$1: $testdev has a driver"
	for function in "$card" "$testdev"; do
		[ ! -e "$bus/$function/uio" ] || fail "$1: $function is shown"
	done
	[ "$(cat /sys/bus/platform/devices/$platform/uio/*/name)" = $platform ] ||
		fail "$1: another driver has $platform"
}

linux_uses before
[ $failed = 0 ] || exit 1
for ((round = 0; round < rounds; round++)); do
	in_turn $round
	takes || { fail "round $round: not taken"; break; }
	realm_uses "round $round"
	for function in "$card" "$edu" "$testdev" $platform $ports; do
		await 'crtos device remove "$function" 2>err' 100 ||
			fail "round $round: $function: $(cat err)"
	done
	crtos down || fail "round $round: down"
	has_back "round $round"
	[ -z "$interface" ] || ip link set "$(name_of "$card")" down
	((round % 10)) || linux_uses "after round $round"
	[ $failed = 0 ] || break
done
linux_uses 'after the rounds'
complaints | grep . && fail 'dmesg after the rounds'
echo "$round rounds"
dmesg --clear

# Kills. Whoever uses the devices does so all the time.
kill_programs() {
	local name
	for name in cat cangen arping uio-e1000e vfio-hostile platform; do
		pkill -KILL -x $name
	done
}
# What Linux does meanwhile with drivers of its own.
meddles() {
	soon 500
	case $((RANDOM % 8)) in
	0) touch anew
		echo "$uart" >/sys/bus/pnp/drivers/serial/unbind; soon 300
		echo "$uart" >/sys/bus/pnp/drivers/serial/bind ;;
	1) echo "$card" >/sys/bus/pci/drivers/e1000e/unbind; soon 300
		echo "$card" >/sys/bus/pci/drivers/e1000e/bind ;;
	2) echo "$can" >/sys/bus/pci/drivers/kvaser_pci/unbind; soon 300
		echo "$can" >/sys/bus/pci/drivers/kvaser_pci/bind ;;
	3) rmmod kvaser_pci; soon 300; modprobe kvaser_pci ;;
	4) rmmod crtos ;;
	5) echo "$edu" >/sys/bus/pci/drivers/vfio-pci/unbind
		echo 1 >"$bus/$testdev/remove"; soon 300; echo 1 >/sys/bus/pci/rescan
		echo "$edu" >/sys/bus/pci/drivers/vfio-pci/bind ;;
	6) echo 1 >"$bus/$card/remove"; soon 300; echo 1 >/sys/bus/pci/rescan ;;
	7) rmmod platform; soon 300; find_platform ;;
	esac 2>/dev/null
}
all_use() {
	local own
	own=$(crtos log 2>/dev/null | grep -o 'can[01]: SJA1000' | tail -n 1 | cut -d: -f1)
	crtos run -- cat /dev/ttyS1 &
	crtos run -- cangen "${own:-can0}" -g 2 &
	crtos run -- sh -c "while :; do $(drive_card); done" &
	crtos run -- sh -c "while :; do cat $(node_of "$testdev"); done" &
	crtos run -- "$PROGRAMS/vfio-hostile" transfer &
	crtos run -- sh -c "while :; do $interrupts; done" &
}
for ((round = 0; round < rounds; round++)); do
	what=$((RANDOM % 5))
	in_turn $round
	if [ $what = 0 ]; then
		killed 999 takes
	elif takes; then
		all_use >/dev/null 2>&1
		soon 700
		meddles &
		meddler=$!
		case $what in
		1) kill_programs ;;
		2) killed 300 crtos device remove "$card" ;;
		3) killed 500 crtos down --force ;;
		4) crtos device remove "$edu"; killed 300 crtos device add "$edu" --no-reset
			killed 50 crtos device remove $ports; killed 50 crtos device add $ports
			killed 50 crtos device remove $platform
			killed 50 crtos device add $platform ;;
		esac 2>/dev/null
		wait $meddler
	else
		fail "kill $round: not taken"
		break
	fi
	crtos down --force >/dev/null 2>&1
	# Programs that were killed, and those that lost their realm.
	kill_programs
	wait
	modprobe -a crtos kvaser_pci
	# Linux has found no UART there.
	if [ -e anew ]; then
		rm anew
		echo "$uart" >/sys/bus/pnp/drivers/serial/unbind 2>/dev/null
		echo "$uart" >/sys/bus/pnp/drivers/serial/bind || fail "kill $round: its UART"
	fi
	await '[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ]' 300 || fail "kill $round: CPUs"
	has_back "kill $round ($what)"
	ip link set "$(name_of "$card")" down
	# A driver that was bound anew forgets what interfaces were set to.
	for function in "${cans[@]}"; do set_up "$(name_of "$function")" 2>/dev/null; done
	((round % 10)) || linux_uses "after kill $round"
	[ $failed = 0 ] || break
done
linux_uses 'after the kills'
drives_no_more "$edu"
rmmod platform || fail 'the platform device is in use'
echo "$round kills"
complaints | grep . && fail 'dmesg after the kills'
exit $failed
