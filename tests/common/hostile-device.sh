# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# A cell whose program has its device attack: it reads and writes memory of Linux, of the
# hypervisor, of the realm and of another cell, and sends messages to all CPUs. Then Linux attacks:
# it forges what its tables say of that device, and writes to its registers and configuration space
# by itself and by another device. Nothing reaches its target.
#
# The script says by which `ways` entries for the device are forged, and what `send_messages` does:
# the program sends those that could interrupt somebody else.

failed=0
fail() { echo "FAILED $*"; failed=1; }
inmates=/usr/lib/crtos/inmates
space() { od -An -tx4 -v "/sys/bus/pci/devices/$edu/config"; }
number() {
	local bus slot function
	IFS=:. read -r _ bus slot function <<<"$1"
	echo $((0x$bus << 8 | 0x$slot << 3 | function))
}
nmis() { awk '/^ *NMI:/ { print $2 + $3 + $4 + $5 }' /proc/interrupts; }
# Some units have a device read zeroes where nothing is.
is_nothing() { [ "$1" = $nothing ] || [ "$1" = 0 ]; }
silent() { crtos cell list --json | gojq -c 'map(.silent_cpus // []) | add'; }

attack_by_device() {
	local page before to found way address register cpu secret resource
	attacker || exit 1
	for cpu in {0..4}; do ids+=("$(apic_id $cpu)"); done
	page=$(attack page)
	# One device reaches the other, which stores eight bytes at that place.
	resource=$(($(cut -d' ' -f1 "/sys/bus/pci/devices/$edu/resource" | head -n 1)))
	attack store quad $((resource + 128)) 0x40000 >/dev/null
	attack dma map mov $resource $resource >/dev/null
	found=$(attack dma read $((resource + 128)))
	[ "$found" = 0x40000 ] || fail "without the hypervisor another device reads $found"
	attack dma undo >/dev/null
	before=$(hidden)
	crtos cell create victim --cpus 2 --memory 8M >/dev/null || exit 1
	mapfile -t own < <(added "$before")
	crtos cell start victim $inmates/prober.elf --command-line keep || exit 1
	[ "$(looked)" = 0 ] || fail 'the victim does not run'
	crtos cell create hostile --cpus 4 --memory 8M >/dev/null || exit 1
	crtos device add "$edu" --cell hostile --no-reset || exit 1
	crtos up --cpus 3 --memory 128M || exit 1
	starts_edu hostile || { crtos log | tail -3; fail 'the program does not have its device'; exit 1; }
	starts_waking
	[ "$(there)" = there ] || fail 'the realm does not run'
	dmesg --clear

	# Its own memory is there, so that what follows means something.
	[ "$(ask hostile $read $((0x1000)))" != $nothing ] || fail 'it reads nothing of its own'
	ask hostile $write $((0x700000)) 0x1234 >/dev/null
	[ "$(ask hostile $read $((0x700000)))" = 0x1234 ] || fail 'it does not write'
	# Where others are, and what no memory is: the unit, timers, messages, its own registers.
	mapfile -t all < <(hidden)
	# Something stands in Linux's page, in blocks of the hypervisor, and in the victim's memory.
	attack dma poke "$page" 0x5ec2e7 >/dev/null
	secret=$((own[0] + 0x1ff000))
	echo "${#all[@]} blocks are hidden"
	for to in $((page)) $secret "${all[0]}" "${all[${#all[@]} / 2]}" "${all[-1]}" $((0xfed90000)) \
		$((0xfec00000)) $((0xfed00000)) $((0xfee03000)) $((0xe0000000)) $((1 << 38)); do
		found=$(ask hostile $read $((to)))
		is_nothing "$found" || fail "it reads $found at $to"
		ask hostile $write $((to)) 0x6675 >/dev/null
	done
	[ "$(attack dma peek "$page")" = 0x5ec2e7 ] || fail "Linux's page changed"
	[ "$(looked)" = 0 ] || fail "the victim's memory changed"
	[ "$(attack hypercall 0 0 0 0 0)" -ge 1 ] || fail 'the hypervisor does not answer'
	goes_on $program 'by memory'

	before="$(nmi_exits 3) $(nmis)"
	send_messages
	[ "$(silent)" = '[]' ] || fail "a CPU is gone: $(silent)"
	[ "$(nmi_exits 3) $(nmis)" = "$before" ] || fail "messages: $before, then $(nmi_exits 3) $(nmis)"
	[ "$(ask hostile $interrupt 5)" = 0x5 ] || fail 'its own messages are lost'
	goes_on $program 'by messages'

	# It writes its own configuration space, of which little is its own.
	before=$(space | sed -n '2,4p')
	for register in 0 12 16 20 36 44 48 52 60 88; do
		ask hostile $put $register -1 >/dev/null
	done
	[ "$(space | sed -n '2,4p')" = "$before" ] || fail 'it moves its registers'
	[ "$(ask hostile $get 16)" != $nothing ] || fail 'it reads nothing'
	ask hostile $put 16 0 >/dev/null
	[ "$(ask hostile $interrupt 5)" = 0x5 ] || fail 'it is not there any more'

	# Linux, by its own configuration space, by ports and as memory.
	before=$(space)
	address=$((1 << 31 | $(number "$edu") << 8))
	local config=/sys/bus/pci/devices/$edu/config
	for register in 4 16 48 60 64 68 72; do
		printf '\xff\xff\xff\xff' | dd of="$config" bs=4 seek=$register oflag=seek_bytes conv=notrunc status=none
		attack pci $((address | register)) 4 $((0xcfc)) $((0xffffffff)) >/dev/null
		attack pci $((address | register)) 1 $((0xcfd)) 255 >/dev/null
	done
	memory=$((0x$(od -An -tx8 -j44 -N8 /sys/firmware/acpi/tables/MCFG | tr -d ' ')))
	for register in 4 16 48 60; do
		[ "$(attack store long $((memory + ($(number "$edu") << 12) + register)) -1)" = 0 ] ||
			fail 'a store to configuration space faults'
	done
	[ "$(space)" = "$before" ] || { fail 'Linux changes it'; diff <(echo "$before") <(space); }
	# And its registers: by itself, and by another device.
	[ "$(attack store long $((resource + 8)) 5)" = -14 ] || fail 'Linux stores to its registers'
	for way in mov pass; do
		[ "$(attack dma map $way $resource $resource)" = 0 ] || echo "way $way is refused"
		[ $way = pass ] && attack dma forget >/dev/null
		found=$(attack dma read $((resource + 128)))
		case $found in nothing | 0x0) ;; *) fail "way $way: another device reads $found" ;; esac
		attack dma write $((resource + 152)) 1 >/dev/null
		attack dma write $((resource + 0x60)) 1 >/dev/null
		attack dma undo >/dev/null
	done
	[ "$(ask hostile $interrupt 5)" = 0x5 ] || fail 'it does not interrupt any more'
	rmmod attack

	# What Linux's tables say of the device.
	insmod "/usr/lib/crtos-tests/attack/$(uname -r)/attack.ko" edu=1 || exit 1
	for way in "${ways[@]}"; do
		address=$((1 << 30 | secret & 0x3fffffff))
		[ "$way" != pass ] || address=$secret
		attack dma map "$way" $address $secret >/dev/null
		attack dma forget >/dev/null
		found=$(ask hostile $read $address)
		is_nothing "$found" || fail "way $way: it reads $found"
		ask hostile $write $address 0x6675 >/dev/null
		[ "$(ask hostile $read $((0x700000)))" = 0x1234 ] || fail "way $way: it loses its memory"
		[ "$(attack dma undo)" = 0 ] || fail "way $way does not end"
		goes_on $program "way $way"
	done
	[ "$(looked)" = 0 ] || fail "the victim's memory changed at last"
	[ "$(ask hostile $interrupt 5)" = 0x5 ] || fail 'it does not interrupt at last'
	# A function of which the module knows nothing goes with its cell.
	page=$(attack page)
	attack dma poke "$page" "$(number "${edus[0]}")" >/dev/null
	[ "$(attack hypercall 16 0 "$page" 0 0)" = 0 ] || fail 'the victim gets no function'
	[ "$(crtos device list --json | gojq length)" = 2 ] || fail 'it is not listed'
	rmmod attack

	# Stopped, it does nothing, and Linux gets it as it gave it.
	crtos cell stop hostile || fail stop
	wakes_on
	crtos cell destroy hostile || fail 'destroy'
	crtos cell destroy victim || fail 'destroy'
	crtos down || fail down
	# What the cell may have left behind in its messages is Linux's to write again.
	attacker || exit 1
	[ "$(attack dma linux)" = fine ] || fail "Linux's device does not work"
	rmmod attack
	complaints | grep -v "${expected[@]}" | grep . && fail dmesg
	exit $failed
}
