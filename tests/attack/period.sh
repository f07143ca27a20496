#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program in the realm keeps its period of 1 ms during each attack that does not end the machine:
# what the other scripts of this folder do, here in virtual time.
# kernels: 6.1
# icount: yes
# turns: short
# realm: no
# shared: yes
# timeout: 1800
# uses: victim period
# Variables are those of common/period.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
inmates=/usr/lib/crtos/inmates
cpus=/sys/devices/system/cpu
smi=$(od -An -tu4 -j48 -N4 /sys/firmware/acpi/tables/FACP | tr -d ' ')
at_random() { attack random "$@" >/dev/null; }

in_memory crtos "$PROGRAMS/periodic" busybox chrt gojq python3 setpriv taskset
attacker || exit 1
crtos up --cpus 3 --memory 256M || exit 1
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
find_private
dmesg --clear

during sleep 1
during at_random registers 1 20000
# To the realm's CPU, where none arrives.
nmis() { attack storm 3 0 1 300 >/dev/null; }
during nmis
# Beside it.
storm() { attack storm 2 0 1 300 >/dev/null; }
during storm
# Pins and timers that are to interrupt the realm's CPU, which is number 3 for the interrupt
# controllers, too.
sources() {
	local vector
	for vector in 16 18 96 200 255; do
		attack redirect 8 $((3 << 56 | vector)) 0 >/dev/null &&
			[ "$(attack timer 2 $((0xfee03000)) $vector)" = 0 ] || return 1
	done
}
entry=$(attack redirect 8)
during sources
attack redirect 8 "$entry" 0 >/dev/null
# Messages of a device, which arrive.
messages() {
	local vector
	for vector in {16..40} 96 200 {250..255}; do
		attack device 3 $vector >/dev/null || return 1
	done
}
during messages
# Such messages by entries of the IOMMU, which do not arrive, in each mode of delivery.
remapped() {
	local mode entry
	for mode in {0..7}; do
		entry=$((1 | mode << 5 | 96 << 16 | 3 << 32))
		attack remapped 65000 $entry 0 >/dev/null || return 1
	done
}
during remapped

# random: entries that are random.
random() {
	attack dma random 1 1000 $((2 << 39)) "$private" >/dev/null || return 1
	attack dma undo >/dev/null
}
during by_tables mov large prepared relinked
during by_tables top contexts root pass off
during random
leave() { for cpu in 0 1 2; do [ "$(attack leave $cpu)" = -3 ] || return 1; done; }
during leave
ports() {
	crtos cell create owner --cpus 2 --memory 4M --port 0x300-0x30f:exclusive >/dev/null &&
		at_random ports 1 20000 0x300 0x30f "$smi" && crtos cell destroy owner
}
during ports
# A cell that breaks its bounds, again and again.
bounds() {
	local what
	crtos cell create hostile --cpus 2 --memory 4M >/dev/null || return 1
	for what in memory-write msr-write icr-init-broadcast icr-foreign-nmi wbinvd triple-fault
	do
		crtos cell start hostile $inmates/prober.elf --command-line $what || return 1
		await '[ "$(crtos cell list --json | gojq -r ".[1].state")" = failed ]' || return 1
		crtos cell stop hostile || return 1
	done
	crtos cell destroy hostile
}
during bounds
hotplug() {
	for _ in 1 2 3; do
		echo 0 >$cpus/cpu2/online && echo 1 >$cpus/cpu2/online || return 1
	done
}
during hotplug
echo 0 >$cpus/cpu2/online || fail 'CPU 2 offline'
during at_random hypercalls 1 5000 0 2
echo 1 >$cpus/cpu2/online || fail 'CPU 2 online'
# The words of programs that call Linux, but not of the one that does not. What is damaged stays so,
# so this comes last.
words() {
	local caller
	setpriv --reuid 12345 --regid 12345 --groups "$(stat -c %g /dev/crtos)" crtos run -- \
		busybox sh -c 'while :; do busybox date; done' >/dev/null 2>&1 &
	caller=$!
	sleep 0.2
	# That of tries_period.
	# shellcheck disable=SC2154
	at_random words 1 20000 "$program" 5
	kill -KILL $caller 2>/dev/null
	wait $caller 2>/dev/null
	true
}
# Here all four CPUs work all the time, so 5 µs of the realm's take 20.
keeps_period 20000 words || fail words

crtos down --force || fail down

# Starts of programs that are forged, and words about the seal.
forged() {
	local parent
	# That of tries_period.
	# shellcheck disable=SC2154
	crtos seal >/dev/null && [ "$(attack offer 1 60000 "$program" 0)" = 27 ] || return 1
	for parent in 1 2 3; do
		[ "$(attack offer 1 60000 99999 $parent)" = 2 ] || return 1
	done
	[ "$(attack unseal)" = 0 ] || return 1
	crtos run -- busybox true 2>/dev/null
	[ $? = 125 ]
}
# A sealed realm takes no program again, so each try has one of its own.
status=1
for _ in 1 2 3; do
	crtos up --cpus 3 --memory 256M --locked || exit 1
	crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
	tries_period 5000 forged
	status=$?
	crtos down || fail 'down when sealed'
	[ $status = 1 ] || break
done
[ $status = 0 ] || fail forged
rmmod attack
# But for faults of the IOMMU, whose entries name nobody.
complaints | grep -v -e DMAR -e 'dmar_fault: .* callbacks suppressed' && fail dmesg
exit $failed
