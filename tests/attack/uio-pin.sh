#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A PCI function of the realm interrupts by its pin, on a line on which Linux has a function, too.
# While a driver of Linux has the line, the realm does not get it. Afterwards Linux writes the
# line's entry of the I/O APIC and the function's registers, and has its own function hold the line;
# and programs do not serve theirs. The line works, and one that is held for nobody is masked.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# uarts: pci
# packages: pciutils
# uses: edu
# timeout: 600
# Variables are those of common/edu.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
place() { echo "/sys/bus/pci/devices/$1"; }
driver() { basename "$(readlink "$(place "$1")/driver" || echo none)"; }
device() { local found; found=$(ls "$(place "$FUNCTION")/uio") && echo "/dev/$found"; }
program=/usr/lib/crtos-tests/abi/uio-pin
# works WHEN: interrupts reach a program.
works() {
	timeout 100 crtos run -- $program each_interrupt_counts a_program_switches_the_pin_off \
		none_comes_before_the_pin_is_on_again >out 2>&1 || { fail "$1"; cat out; }
}
# count: how often the line has interrupted.
count() {
	crtos stats --json |
		gojq --arg name "$FUNCTION" '.realm.interrupts[] | select(.device == $name) | .count'
}
# settled: that, when no interrupts come any more. The realm says it four times a second.
settled() { sleep 1; count; }
# keeps_open: a program has the function open.
keeps_open() {
	# shellcheck disable=SC2016
	crtos run -- bash -c 'exec 3<>"$0"; exec sleep 1000' "$(device)" &
	keeper=$!
	await "crtos ps | grep -q ' sleep  *S'" || fail 'no program has it open'
}
closes() { kill $keeper; wait $keeper; }
attacker || exit 1
modprobe -a uio_pci_generic crtos || exit 1

edu=${edus[0]}
echo uio_pci_generic >"$(place "$edu")/driver_override"
echo "$edu" >/sys/bus/pci/drivers_probe
line=$(cat "$(place "$edu")/irq")
FUNCTION=
for each in $(lspci -Dnd 1b36:0002 | cut -d' ' -f1); do
	[ "$(cat "$(place "$each")/irq")" != "$line" ] || FUNCTION=$each
done
[ -n "$FUNCTION" ] || { fail "no card has line $line"; exit 1; }
export FUNCTION OTHER=$FUNCTION
dmesg --clear
crtos up --cpus 3 --memory 256M || exit 1

# A driver of Linux has the line.
refused "a driver of Linux has interrupt $line, for uio_pci_generic" \
	crtos device add "$FUNCTION" --no-reset
[ "$(driver "$FUNCTION")" = serial ] || fail "$(driver "$FUNCTION") has it"
crtos device add "$FUNCTION" --no-reset --no-interrupt || fail 'without interrupts'
await '[ -c "$(device 2>/dev/null)" ]' || fail 'there is no device'
refused 'Input/output error' timeout 60 crtos run -- dd if="$(device)" bs=4 count=1
crtos device remove "$FUNCTION" || fail 'remove'
echo "$edu" >"$(place "$edu")/driver/unbind"
echo >"$(place "$edu")/driver_override"
crtos device add "$FUNCTION" --no-reset || exit 1
await '[ -c "$(device 2>/dev/null)" ]' || fail 'there is no device'
[ "$(cat "/sys/kernel/irq/$line/actions")" = crtos ] || fail 'a driver of Linux may take the line'
works 'at first'

# Linux writes what is the realm's: the entry, and the function's command register.
keeps_open
entry=$(attack redirect "$line")
(($entry & 1 << 16)) && fail 'the line is masked'
before=$(setpci -s "$FUNCTION" COMMAND)
for value in $((1 << 16)) $((0xd0)) $((1 << 16 | 1 << 15 | 0xd0)); do
	attack redirect "$line" $value 0 >/dev/null
	[ "$(attack redirect "$line")" = "$entry" ] || fail "entry $value"
done
for value in 0 403 407; do
	setpci -s "$FUNCTION" COMMAND=$value
	[ "$(setpci -s "$FUNCTION" COMMAND)" = "$before" ] || fail "command $value"
done
works 'after Linux wrote'

# A program that does not serve the function: it interrupts once, and then nobody.
interrupted=$(settled)
timeout 60 crtos run -- sh -c "printf '\2' | dd of=$(place "$FUNCTION")/resource0 bs=1 seek=1 conv=notrunc" 2>/dev/null ||
	fail 'no access to the ports'
timeout 60 crtos run -- setpci -s "$FUNCTION" COMMAND=3 || fail 'the pin is not switched on'
await '[ "$(count)" -gt "$interrupted" ]' 100 || fail 'it does not interrupt'
[ "$(settled)" -le $((interrupted + 2)) ] || fail "it goes on: $interrupted, then $(count)"
closes
works 'after it was not served'

# Linux's function holds the line, for nobody.
keeps_open
interrupted=$(settled)
echo 1 >"$(place "$edu")/enable"
registers=$(($(cut -d' ' -f1 "$(place "$edu")/resource" | head -n 1)))
busybox devmem $((registers + 0x60)) 32 1
await "crtos log | grep -q '$FUNCTION interrupts too often, and is silenced'" 200 ||
	fail "it is not masked: $(count)"
sleep 1
[ "$(settled)" -le $((interrupted + 150)) ] || fail "for nobody it interrupts: $interrupted, $(count)"
interrupted=$(count)
timeout 100 crtos run -- true || fail 'the realm does not go on'
[ "$(count)" -le $((interrupted + 2)) ] || fail 'it interrupts all the same'
busybox devmem $((registers + 0x64)) 32 1
[ "$(busybox devmem $((registers + 0x24)))" = 0x00000000 ] || fail 'it holds the line still'
echo 0 >"$(place "$edu")/enable"
closes
works 'after the line was held'

crtos device remove "$FUNCTION" || fail 'remove at last'
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
