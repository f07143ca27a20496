#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# PCI configuration space of an IOMMU of AMD's kind, which has a message for what happens in the
# unit: Linux interrupts no CPU of the realm by it, whether it sets it up before or beside the
# realm, and in whatever way. All is Linux's again afterwards.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# iommu: amd
# timeout: 900
# uses: space
# Those of starts_waking and of common/space.sh.
# shellcheck disable=SC2154
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }

unit=$(function_of class 0x080600)
edu=$(function_of device 0x11e8)
bridge=/sys/bus/pci/devices/0000:00:00.0
[ -e "$unit/config" ] && [ -e "$edu/config" ] || { echo 'no IOMMU, or no edu'; exit 1; }
# number FUNCTION: bus, device and function in 16 bits.
number() {
	local bus slot
	IFS=:. read -r _ bus slot function <<<"${1##*/}"
	echo $((0x$bus << 8 | 0x$slot << 3 | function))
}
space() { od -An -tx4 -v "$1/config"; }
finds_message "$unit" || exit 1

attacker || exit 1
window=$((0xfee00000 | $(apic_id 3) << 12))
# sends_nmi: the unit is to send CPU 3 an NMI.
sends_nmi() { aim "$unit" $window $((0x400)) 1; }
# event: the unit logs one: edu reads where nothing is.
event() { attack dma read 0x123456789000 >/dev/null || fail 'edu does not read'; }
# completion: it is done with a command that asks for an interrupt.
completion() { attack tell $((1 << 60 | 2)) 0 >/dev/null || fail 'no command'; }
# What the unit has: interrupts for events and completions, by its message in configuration space.
control=$(attack unit $((0x18)))
high=$(attack unit $((0x1c)))
attack unit $((0x1c)) $((high & ~(1 << 19))) >/dev/null
attack unit $((0x18)) $((control | 0x18)) >/dev/null
# Whoever gets them expects NMIs.
attack message 3 $((0x400)) >/dev/null
event
nmis=$(nmi_count 3)
sends_nmi
event
handles_nmi 3 "$nmis" || fail 'without the hypervisor no message of the unit interrupts a CPU'
nmis=$(nmi_count 3)
completion
handles_nmi 3 "$nmis" || fail 'without the hypervisor no completion interrupts a CPU'
# By a race it changes, too.
unit_address=$((1 << 31 | $(number "$unit") << 8)) edu_address=$((1 << 31 | $(number "$edu") << 8))
line=$(get "$edu" 0x3c 1)
race() {
	attack race $((edu_address | 0x3c)) $((unit_address | data)) $((0x33)) "$1" >/dev/null ||
		fail 'no race'
}
is_lost() { race 1000; [ "$(get "$unit" $data 1)" = $((0x33)) ]; }
await is_lost 30 || fail 'without the hypervisor no race is lost'
put "$unit" $data 2 $((0x400))
put "$edu" 0x3c 1 "$line"

# It is set up when the realm comes.
crtos up --cpus 3 --memory 256M || exit 1
crtos stats | grep -q '^protected: ' || fail 'the unit is not taken over'
starts_waking
dmesg --clear
[ "$(there)" = there ] || fail 'the realm does not run'
before=$(nmi_exits 3)
quiet() {
	event
	completion
	[ "$(nmi_exits 3)" = "$before" ] || fail "$1: CPU 3 exits: $before before, $(nmi_exits 3) after"
	before=$(nmi_exits 3)
}
quiet 'set up before'
(($(get "$unit" $flags 2) & 1)) && fail 'the unit still sends messages'
kept=$(space "$unit") bridge_kept=$(space $bridge)
keeps() {
	[ "$(space "$unit")" = "$kept" ] || { fail "$1 changes the unit"; diff <(echo "$kept") <(space "$unit"); }
	[ "$(space $bridge)" = "$bridge_kept" ] || fail "$1 changes the bridge"
}
# Each register, by ports and in each width.
for register in 0x04 0x3c $((capability + 4)) $data $flags; do
	port=$((0xcfc + (register & 3)))
	address=$((unit_address | register & 0xfc))
	for width in 1 2 4; do
		((width == 4)) && port=$((0xcfc))
		attack pci $address $width $port $((0xffffffff)) >/dev/null
		keeps "a write of $width bytes to $register"
	done
	# From the last byte of the register before, as an emulator has it.
	attack pci $((unit_address | register & 0xfc - 1)) 4 $((0xcfc)) $((0xffffffff)) >/dev/null
	attack pci $((address | 0x1000000)) 4 $((0xcfc)) $((0xffffffff)) >/dev/null
	attack pci $address 4 $((0xcfa)) $((0xffffffff)) >/dev/null
	keeps "an odd write to $register"
done
attack pci $((unit_address | flags & 0xfc)) 1 $((0xcfe)) 1 >/dev/null
attack outb $((0xcfe)) 1 >/dev/null
attack outw $((0xcfe)) 1 >/dev/null
[ "$(attack outs $((0xcfe)) 1)" = -14 ] || fail 'a string reaches a port'
keeps 'a write without an address'
attack pci $((0x80000060)) 4 $((0xcfc)) $((0xc0000001)) >/dev/null
attack pci $((0x80000064)) 1 $((0xcff)) 1 >/dev/null
keeps 'a write to the bridge'
quiet 'by ports'
race 2000
keeps 'a race'
put "$edu" 0x3c 1 "$line"

# As memory.
memory=$((0x$(od -An -tx8 -j44 -N8 /sys/firmware/acpi/tables/MCFG | tr -d ' ')))
[ $memory -gt 0 ] || fail 'configuration space is no memory'
page=$((memory + ($(number "$unit") << 12)))
for kind in byte word long quad; do
	for register in 0x00 0x3c $((capability & ~7)) $((capability + 8 & ~7)) $data $flags; do
		# Each is a multiple of its size.
		[ $kind = quad ] && register=$((register & ~7))
		[ $kind = long ] && register=$((register & ~3))
		[ "$(attack store $kind $((page + register)) -1)" = 0 ] || fail "$kind to $register faults"
		keeps "$kind to $register"
	done
	[ "$(attack store $kind $((memory + 0x60)) 0x1c0000001)" = 0 ] || fail "$kind to the bridge faults"
	keeps "$kind to the bridge"
done
for kind in movnti xchg or add bts; do
	[ "$(attack store $kind $((page + flags & ~3)) $((0x10000)))" = -14 ] || fail "$kind does not fault"
	keeps "$kind"
done
[ "$(attack store quad $((page + data - 6)) -1)" = -14 ] || fail 'a store that is not aligned does not fault'
keeps 'all this'
quiet 'as memory'
sends_nmi
keeps 'the kernel'
quiet 'by the kernel'

# Others are as they were.
for value in $((0x55)) "$line"; do
	put "$edu" 0x3c 1 "$value"
	[ "$(get "$edu" 0x3c 1)" = "$value" ] || fail 'edu does not keep its register'
	attack pci $((edu_address | 0x3c)) 1 $((0xcfc)) $((value ^ 1)) >/dev/null
	[ "$(get "$edu" 0x3c 1)" = $((value ^ 1)) ] || fail 'edu does not keep it by ports'
	put "$edu" 0x3c 1 "$value"
done
# So are other registers of the bridge, of which the hypervisor carries the stores out.
other=$(get $bridge 0xd8 8)
digits=1122334455667788
for kind in byte=1 word=2 long=4 quad=8; do
	size=${kind#*=}
	attack store "${kind%=*}" $((memory + 0xd8)) 0x$digits >/dev/null
	[ "$(get $bridge 0xd8 "$size")" = $((0x${digits: -2 * size})) ] ||
		fail "$kind: the bridge is not reached"
done
put $bridge 0xd8 8 "$other"
modprobe nvme || fail nvme
await '[ -b /dev/nvme0n1 ]' || fail 'no disk'
disk=$(basename "$(readlink -f /sys/class/nvme/nvme0/device)")
echo "$disk" >/sys/bus/pci/drivers/nvme/unbind || fail unbind
echo "$disk" >/sys/bus/pci/drivers/nvme/bind || fail bind
await '[ -b /dev/nvme0n1 ]' || fail 'the disk does not come back'
dd if=/dev/nvme0n1 of=/dev/null bs=64K count=16 iflag=direct status=none || fail 'it cannot be read'
# Between these ports is one that resets the machine, and keeps a bit that does not.
for value in 0x2 0x0; do
	attack outb $((0xcf9)) $((value)) >/dev/null
	[ "$(attack inb $((0xcf9)))" = $value ] || fail 'the port between is not there'
done
# No cell gets these ports.
for range in 0xcf8-0xcff 0xcfc 0xcf8-0xcfb:exclusive; do
	crtos cell create other --cpus 2 --memory 4M --port $range 2>/dev/null && {
		fail "a cell gets $range"
		crtos cell destroy other
	}
done

crtos log | grep 'interrupt .* that nobody asked for' && fail 'an interrupt comes through'
crtos log | grep -q 'write to configuration space refused' || fail 'the hypervisor does not tell'
goes_on $program 'all this'
wakes_on
crtos down || fail down

# What was set up before.
(($(get "$unit" $flags 2) & 1)) || fail 'the message is not as it was'
nmis=$(nmi_count 3)
event
handles_nmi 3 "$nmis" || fail 'Linux does not get its message back'
put "$unit" $flags 2 0
put "$unit" $data 2 $((0x99))
[ "$(get "$unit" $data 2)" = $((0x99)) ] || fail 'Linux does not get the unit back'
put "$unit" $data 2 0
attack unit $((0x1c)) $((high)) >/dev/null
attack unit $((0x18)) $((control)) >/dev/null
rmmod attack
complaints | grep -v -e AMD-Vi | grep . && fail dmesg
exit $failed
