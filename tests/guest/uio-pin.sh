#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Unmodified programs drive PCI functions that interrupt by their pins, on one line, through UIO:
# tests/abi/uio-pin.c runs under Linux, and then in the realm. A line that a driver of Linux has is
# refused.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# pair: yes
# packages: pciutils
# uses: alike
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
export FUNCTION=0000:00:1c.0 OTHER=0000:00:1c.1
place() { echo "/sys/bus/pci/devices/$1"; }
node() { local found; found=$(ls "$(place "$1")/uio") && echo "/dev/$found"; }
program=/usr/lib/crtos-tests/abi/uio-pin
# interrupts FUNCTION: how often functions on its line have interrupted.
interrupts() {
	crtos stats --json | gojq --arg name "$1" \
		'.realm.interrupts[] | select(.device | startswith($name)) | .count'
}
modprobe -a uio_pci_generic crtos || exit 1
for each in $FUNCTION $OTHER; do
	echo "$each" >"$(place "$each")/driver/unbind"
	echo uio_pci_generic >"$(place "$each")/driver_override"
	echo "$each" >/sys/bus/pci/drivers_probe
	await "[ -c \"\$(node $each 2>/dev/null)\" ]" || fail "Linux has no $each"
done
line=$(cat "$(place $FUNCTION)/irq")
[ "$line" = "$(cat "$(place $OTHER)/irq")" ] || fail 'they are on two lines'
natively 200 $program
for each in $FUNCTION $OTHER; do
	echo "$each" >"$(place "$each")/driver/unbind"
	echo >"$(place "$each")/driver_override"
done
dmesg --clear

crtos up --cpus 3 --memory 256M || exit 1
crtos device add $FUNCTION --no-reset || exit 1
crtos log | grep "has line $line," || fail 'the realm has no line'
await "[ -c \"\$(node $OTHER 2>/dev/null)\" ]" || fail 'there is no device'
alike 400 $program
[ "$(interrupts $FUNCTION)" -ge 80 ] || fail "stats: $(crtos stats)"
crtos stats | grep -A1 '^DEVICE'
crtos device remove $FUNCTION || fail remove
crtos log | grep "has line $line no more" || fail 'the realm keeps the line'
crtos down || fail down
complaints | grep . && fail dmesg
for each in $FUNCTION $OTHER; do echo "$each" >/sys/bus/pci/drivers_probe; done
[ "$(basename "$(readlink "$(place $FUNCTION)/driver")")" = serial ] || fail 'not given back'
exit $failed
