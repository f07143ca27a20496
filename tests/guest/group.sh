#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Functions that the IOMMU does not tell from each other go to the realm together, or none does; and
# they come back together. Meanwhile no driver of Linux gets one of them.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# pair: yes
# packages: pciutils
# timeout: 400
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
first=0000:00:1c.0 second=0000:00:1c.1
place() { echo "/sys/bus/pci/devices/$1"; }
group() { basename "$(readlink "$(place "$1")/iommu_group")"; }
driver() { basename "$(readlink "$(place "$1")/driver" || echo none)"; }
has() { crtos device list --json | gojq -r '[.[].function] | sort | join(" ")'; }
# works FUNCTION [RUN...]: the register of the UART that keeps what is written there.
works() {
	local byte file
	file=$(place "$1")/resource0
	for byte in Z z; do
		printf %s $byte | "${@:2}" dd of="$file" bs=1 seek=7 conv=notrunc status=none &&
			[ "$("${@:2}" dd if="$file" bs=1 skip=7 count=1 status=none)" = $byte ] || return
	done
}
in_realm() { works "$1" timeout 60 crtos run --; }
unbound() { for each in $first $second; do echo "$each" >/sys/bus/pci/drivers/serial/unbind; done; }
[ "$(group $first)" = "$(group $second)" ] || { echo 'they are no group'; exit 1; }
modprobe crtos
[ "$(driver $first) $(driver $second)" = 'serial serial' ] || fail "drivers: $(driver $first)"
dmesg --clear

# One that a driver of Linux has stays, and with it the other one, which its driver has again.
crtos up --cpus 3 --memory 256M || exit 1
refused "$first from $second, which the driver serial has: take it from that first" \
	crtos device add $first --no-reset
[ -z "$(has)" ] || fail "the realm has $(has)"
[ "$(driver $first)" = serial ] || fail "$(driver $first) has the first one"
unbound

# Both go, whichever was asked for, and come back.
for one in $first $second; do
	crtos device add "$one" --no-reset || fail "add $one"
	[ "$(has)" = "$first $second" ] || fail "after $one the realm has $(has)"
	for each in $first $second; do
		in_realm "$each" || fail "$each does not work"
		[ "$(driver "$each")" = crtos ] || fail "$(driver "$each") has $each"
		refused 'already' crtos device add "$each" --no-reset
	done
	# A program that has one keeps both.
	# shellcheck disable=SC2016
	timeout 300 crtos run -- bash -c 'exec 3<"$0"; exec sleep 1000' \
		"/dev/$(ls "$(place $second)/uio")" &
	program=$!
	await "crtos ps | grep -q ' sleep  *S'" || fail 'no sleeper'
	refused "programs of the realm have $second open" crtos device remove $first
	[ "$(has)" = "$first $second" ] || fail "then the realm has $(has)"
	in_realm $first || fail 'it is lost'
	kill $program
	wait $program
	await "crtos device remove $one 2>err" || { fail "remove $one"; cat err; }
	[ -z "$(has)" ] || fail "after remove the realm has $(has)"
	[ "$(driver $first) $(driver $second)" = 'serial serial' ] || fail 'not given back'
	unbound
done

# One that the machine loses and finds again is no driver's as long as the realm has the other. Of
# the two, it is the first one of which Linux sees then that it is one of several in its slot.
crtos device add $first --no-reset || fail 'add once more'
echo 1 >"$(place $first)/remove"
echo 1 >/sys/bus/pci/rescan
await "[ -e $(place $first) ]" || fail rescan
[ "$(group $first)" = "$(group $second)" ] || fail 'it is in another group'
[ "$(driver $first)" = none ] || fail "$(driver $first) has it"
refused "cell 0 has $second already" crtos device add $first --no-reset
in_realm $second || fail 'the other one'
crtos device remove $second || fail 'remove at last'
echo $second >/sys/bus/pci/drivers/serial/unbind

# The realm's end gives both back.
crtos device add $second --no-reset || fail 'add at last'
crtos down || fail down
[ "$(driver $first) $(driver $second)" = 'serial serial' ] || fail 'they are not given back at last'
# The driver of the one that came back did not get it.
complaints | grep -v "$first: device attach failed (-16)" | grep . && fail dmesg
exit $failed
