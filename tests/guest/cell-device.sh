#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# PCI functions of cells: Linux's drivers let them go and get them back, a cell hears their messages
# without an exit, they copy its memory, and what Linux uses is refused.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: edu
# full: ROUNDS=100
# timeout: 1200
# Variables are those of common/edu.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
check() { local name=$1; shift; if "$@"; then echo "ok $name"; else fail "$name: status $?"; fi; }
driver() { basename "$(readlink "/sys/bus/pci/devices/$1/driver")"; }
holders() { crtos device list --json | gojq -c 'map([.function, .cell])'; }
space() { od -An -tx4 -v -N 64 "/sys/bus/pci/devices/$1/config"; }
modprobe -a e1000e crtos || exit 1
dmesg --clear
for device in /sys/bus/pci/drivers/e1000e/0000*; do cards+=("${device##*/}"); done
card=${cards[0]}
name=$(basename /sys/bus/pci/devices/"$card"/net/*)

refused 'crtos is not up' crtos device add "$edu"
crtos cell create demo --cpus 3 --memory 16M >/dev/null || exit 1
refused 'there is no device' crtos device add eth9 --cell demo
refused 'no such cell' crtos device add "$edu" --cell other
refused 'there is no such cell' crtos device add "$edu"
refused 'several devices are' crtos device add 1234:11e8 --cell demo
refused 'lspci -D. lists addresses' crtos device add 0000:00:1e.7 --cell demo
refused 'without its folder: eth9' crtos device add /dev/eth9 --cell demo
refused 'several devices are' crtos device add 8086:10D3 --cell demo
refused 'cannot be reset' crtos device add "$edu" --cell demo
refused 'no cell has it' crtos device remove "$edu"
ip link set "$name" up
refused "$name is up" crtos device add "$name" --cell demo
ip link set "$name" down
# A disk that somebody has mounted, also where that is not seen here.
modprobe nvme && await '[ -b /dev/nvme0n1 ]' || exit 1
mkfs.ext4 -q /dev/nvme0n1 16M && mkdir disk && mount /dev/nvme0n1 disk || fail 'no disk'
disk=$(basename "$(readlink -f /sys/class/nvme/nvme0/device)")
for each in nvme0n1 "$disk"; do
	refused 'nvme0n1 is mounted at' crtos device add "$each" --cell demo
done
umount disk
unshare -m sh -c 'mount /dev/nvme0n1 disk && echo >mounted && exec sleep 1000' &
elsewhere=$!
await '[ -e mounted ]'
refused 'somebody has nvme0n1 for himself' crtos device add nvme0n1 --cell demo
kill $elsewhere
wait $elsewhere 2>/dev/null
await 'modprobe -r nvme 2>/dev/null' 100 || fail 'the disk stays in use'
bridge=$(grep -l 0x060400 /sys/bus/pci/devices/*/class | head -n 1 | cut -d/ -f6)
[ -z "$bridge" ] || refused 'is a bridge' crtos device add "$bridge" --cell demo
[ "$(driver "$card")" = e1000e ] || fail 'the driver is gone after a refusal'

# A device that Linux has no driver for, in a cell that is made, runs, stops and runs again.
before=$(space "$edu")
check add crtos device add "${edu#0000:}" --cell demo --no-reset
[ "$(holders)" = "[[\"$edu\",\"demo\"]]" ] || fail "list: $(holders)"
[ "$(driver "$edu")" = crtos ] || fail 'its driver in Linux'
refused 'has .* already' crtos device add "$edu" --cell demo
check 'the program hears and copies' starts_edu demo
exits() { crtos stats --json | gojq -c '.cpus[] | select(.cpu == 3) | .exits | del(.hypercall)'; }
count=$(exits)
interrupts=$(asked demo 0)
[ "$(ask demo $interrupt 200)" = 0xc8 ] || fail 'interrupts are lost'
[ $(($(asked demo 0) - interrupts)) = 200 ] || fail 'interrupts come twice'
[ "$(exits)" = "$count" ] || fail "exits: $count before, $(exits) after 200 interrupts"
check stop crtos cell stop demo
check 'again' starts_edu demo
check remove crtos device remove "$edu"
[ "$(holders)" = '[]' ] || fail "list: $(holders)"
[ "$(space "$edu")" = "$before" ] || { fail 'it has changed'; diff <(echo "$before") <(space "$edu"); }
[ -e "/sys/bus/pci/devices/$edu/driver" ] && fail 'it has a driver'
# The program has no registers any more: its next access is a fault of its own, and nothing else.
PATIENCE=5 ask demo $interrupt 1 >/dev/null
await 'crtos log | grep -q "demo: exception 13 error 0x0"' 100 || fail 'it reaches them'
[ "$(crtos cell list --json | gojq -r '.[0].state')" = running ] || fail 'the cell has ended'

# With the device in a cell of which nothing runs any more, and destroyed with it.
check 'stop' crtos cell stop demo
check 'add to a stopped cell' crtos device add "$edu" --cell demo --no-reset
check 'and again' starts_edu demo
check destroy crtos cell destroy demo
[ "$(space "$edu")" = "$before" ] || fail 'it has changed after destroy'

# A network card comes back working as before, from the realm too.
crtos up --cpus 3 --memory 128M || exit 1
check 'add by name' crtos device add "$name"
[ "$(driver "$card")" = crtos ] || fail 'its driver in Linux'
[ -e "/sys/class/net/$name" ] && fail 'Linux has its interface'
[ "$(there)" = there ] || fail 'the realm does not run'
check 'remove by address' crtos device remove "$card"
[ "$(driver "$card")" = e1000e ] || fail 'its driver has not got it back'
check 'add again' crtos device add "$card"
crtos down || fail down
[ "$(driver "$card")" = e1000e ] || fail 'its driver has not got it back at down'
for number in 0 1; do
	ip netns add end$number
	name=$(basename /sys/bus/pci/devices/"${cards[number]}"/net/*)
	ip link set "$name" netns end$number
	ip -n end$number address add 10.0.0.$((number + 1))/24 dev "$name"
	ip -n end$number link set "$name" up
done
await 'ip netns exec end0 busybox ping -q -c 1 -W 1 10.0.0.2 >/dev/null' || fail 'no wire'

# A cell that is made with devices, or not at all.
refused 'there is no device' crtos cell create demo --cpus 3 --device eth9
refused 'cannot be reset' crtos cell create demo --cpus 3 --device "$edu"
refused 'has .* already' crtos cell create demo --cpus 3 --device "$edu" \
	--device "$edu" --no-reset
crtos cell list 2>/dev/null | grep demo && fail 'a cell is left'
[ -e "/sys/bus/pci/devices/$edu/driver" ] && fail 'a device is left'
check create crtos cell create demo --cpus 3 --device "${edu#0000:}" --no-reset
[ "$(holders)" = "[[\"$edu\",\"demo\"]]" ] || fail "list: $(holders)"
check 'it works there' starts_edu demo
check destroy crtos cell destroy demo
[ "$(space "$edu")" = "$before" ] || fail 'it has changed'

# Killed tools leave a device with a cell or with Linux, and nothing in between.
crtos cell create demo --cpus 3 --memory 16M >/dev/null || exit 1
for ((round = 0; round < ${ROUNDS:-3}; round++)); do
	crtos device add "$edu" --cell demo --no-reset &
	sleep "0.0$((RANDOM % 10))"
	kill -KILL $! 2>/dev/null
	wait $! 2>/dev/null
	case $(holders) in
	'[]') [ -e "/sys/bus/pci/devices/$edu/driver" ] && fail "round $round: bound" ;;
	*) crtos device remove "$edu" || fail "round $round: remove" ;;
	esac
	[ "$(space "$edu")" = "$before" ] || fail "round $round: it has changed"
done
check 'add' crtos device add "$edu" --cell demo --no-reset
check 'it works' starts_edu demo
# Of a cell that is locked nobody takes one.
crtos cell lock demo || fail lock
refused 'locked' crtos device remove "$edu"
refused 'locked' crtos device add "$card" --cell demo
complaints | grep . && fail dmesg
exit $failed
