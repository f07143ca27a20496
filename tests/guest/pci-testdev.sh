#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The smallest driver of a PCI function in the kernel: `cat` has a device make its tests, and tells
# the same as what is found under Linux by its registers. Programs that are killed and a Linux that
# takes the device away leave nothing behind.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# packages: pciutils
# devices: yes
# full: ROUNDS=100
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
device=$(lspci -Dnd 1b36:0005 | cut -d' ' -f1)
place=/sys/bus/pci/devices/$device
node() { local found; found=$(ls "$place/uio") && echo "/dev/$found"; }
gets() {
	crtos device add 1b36:0005 --no-reset || { fail "add: $1"; return 1; }
	await '[ -c "$(node 2>/dev/null)" ]' || fail "no file: $1"
}
# works WHEN: the realm finds what Linux has found.
works() {
	crtos run -- cat "$(node)" >report || fail "cat: $1"
	sed 's/, [0-9]* ns each$//' report | cmp - expected || { fail "report: $1"; cat report; }
}
modprobe crtos
dmesg --clear

# Under Linux: each test says where an access is to go.
first=$(cut -d' ' -f1 "$place/resource" | head -n 1)
register() { busybox devmem $((first + $1)) "${@:2}"; }
echo 1 >"$place/enable"
for test in 0 1 2; do
	register 0 8 $test
	offset=$(register 4) data=$(register 8 8) name=
	for ((i = 16; ; i++)); do
		letter=$(register $i 8)
		((letter)) || break
		# shellcheck disable=SC2059
		name+=$(printf "\\x${letter#0x}")
	done
	for _ in 1 2 3; do register $((offset)) 8 "$data"; done
	[ $(($(register 12))) = 3 ] && counts=1000 || counts=$(($(register 12)))
	echo "$name: $counts of 1000 accesses counted"
done >expected
register 0 8 255
echo 0 >"$place/enable"
cat expected
grep -q '^mmio-no-eventfd: 1000 ' expected || fail 'the device does not count under Linux'

crtos up --cpus 3 --memory 256M || exit 1
gets 'at first' || exit 1
works 'at first'
cat report
crtos log | grep "$device"
file=$(node)
# It is read once, and byte by byte.
[ "$(crtos run -- dd if="$file" bs=1 status=none | wc -l)" = 3 ] || fail 'byte by byte'
# shellcheck disable=SC2016
crtos run -- bash -c 'exec 3<>"$0"; ! echo 1 >&3' "$file" 2>err || fail 'it can be written to'
grep -q 'Invalid argument' err || { fail 'written'; cat err; }
# Nobody but its driver has its registers; under Linux nobody has the file.
refused 'mmap: No such device\|mmap: Invalid' crtos run -- busybox devmem "$first"
refused 'busy' cat "$file"
# Who has it open keeps it.
# shellcheck disable=SC2016
crtos run -- bash -c 'exec 3<"$0"; exec sleep 1000' "$file" &
sleeper=$!
await "crtos ps | grep -q ' sleep  *S'" || fail 'no sleeper'
refused 'programs of the realm have' crtos device remove "$device"
kill $sleeper
wait $sleeper
await 'crtos device remove "$device" 2>err' || { fail remove; cat err; }

# Programs and tools that are killed at any moment leave nothing behind.
for ((round = 0; round < ${ROUNDS:-4}; round++)); do
	gets "round $round" || break
	crtos run -- sh -c 'while cat "$0"; do :; done' "$(node)" >/dev/null 2>&1 &
	program=$!
	sleep "0.$((RANDOM % 10))"
	case $((round % 4)) in
	0 | 2) kill -KILL $program ;;
	1) # Linux takes it away: the program's next read fails.
		echo 1 >"$place/remove"
		await "! [ -d /proc/$program ]" || { fail "round $round: it reads on"; kill $program; }
		echo 1 >/sys/bus/pci/rescan ;;
	3)
		crtos device remove "$device" 2>/dev/null &
		sleep "0.0$((RANDOM % 10))"
		kill -KILL $! $program 2>/dev/null
		wait $! 2>/dev/null ;;
	esac
	wait $program
	[ "$(crtos device list --json)" = '[]' ] ||
		await 'crtos device remove "$device" 2>err' || { fail "round $round: remove"; cat err; }
	[ -e "$place/uio" ] && fail "round $round: it is shown still"
done
gets 'at last' && works 'at last'
crtos down || fail down
[ -e "$place/driver" ] && fail 'it is not given back'
complaints | grep . && fail dmesg
exit $failed
