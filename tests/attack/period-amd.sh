#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As period.sh, for an IOMMU of AMD's kind: a program in a locked realm keeps its period of 1 ms
# during each attack by the IOMMU, and the realm stays locked.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# icount: yes
# turns: short
# realm: no
# iommu: amd
# timeout: 1800
# uses: victim period
# Variables are those of common/period.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
STOP=6 RECLAIM=7 DESTROY=8 LOCKED=-9
in_memory crtos "$PROGRAMS/periodic" chrt gojq python3
attacker || exit 1
apic=$(apic_id 3)
window=$((apic << 12)) nmi=$((0x400))
# Linux does not hear of faults: see dma-amd.sh.
attack unit 0x18 $(($(attack unit 0x18) & ~(1 << 3))) >/dev/null
crtos up --cpus 3 --memory 256M --locked || exit 1
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
crtos stats | grep -q '^protected: ' || fail 'the unit is not taken over'
find_private
dmesg --clear

during sleep 1
refusals() { crtos stats --json | gojq ".hypervisor.$1"; }
interrupts=$(refusals iommu_refusals) memory=$(refusals dma_refusals)
exits=$(nmi_exits 3)
# Entries for interrupts of the realm's CPU, in each mode of delivery.
remapped() {
	local mode
	for mode in {0..7}; do
		attack remapped 500 $((1 | mode << 2 | apic << 8)) 96 >/dev/null || return 1
	done
}
during remapped
# Entries of the device table by which messages would pass, in a table of one's own, too.
passed() {
	local word
	for word in 0 $((1 | 1 << 60)) $((1 | 7 << 56 | 3 << 62)); do
		attack passed -1 "$word" $window $nmi >/dev/null || return 1
		attack passed 0 "$word" $window 96 >/dev/null || return 1
		attack table 0 "$word" >/dev/null && attack alone $window $nmi >/dev/null &&
			attack untable >/dev/null || return 1
	done
}
during passed
during by_tables mov large prepared relinked
during by_tables top narrow higher domain
during by_tables table pass off none
# Commands that store to the realm's memory, that interrupt its CPU, and that forget all, each with
# a buffer full of others.
commands() {
	attack tell $((1 << 60 | 1 | private)) $((0x5ec2)) >/dev/null &&
		attack unit $((0x170)) $((apic << 8)) >/dev/null &&
		attack unit $((0x174)) 96 >/dev/null &&
		attack tell $((1 << 60 | 2)) 0 >/dev/null &&
		attack tell $((8 << 60)) 0 >/dev/null
}
during commands
# Of the first two kinds, and of those that lead to the realm.
[ $(($(refusals iommu_refusals) - interrupts)) -ge 14 ] || fail 'interrupts are not refused'
[ $(($(refusals dma_refusals) - memory)) -ge 8 ] || fail 'memory is not refused'
[ "$(nmi_exits 3)" = "$exits" ] || fail 'CPU 3 exits'
crtos log | grep 'interrupt .* that nobody asked for' && fail 'an interrupt comes through'
for call in $STOP $RECLAIM $DESTROY; do hypercall $LOCKED "$call" 0; done
crtos run -- busybox sleep 1000 & program=$!
await 'crtos ps | grep -qw $program' || fail 'no program'
crtos down --force 2>/dev/null && fail 'root stops it'
crtos run -- sh -c "kill $program" || fail 'kill'
wait $program
[ "$(crtos cell list --json | gojq -r '.[0].state')" = locked ] || fail 'it is not locked any more'
[ "$(crtos cell list --json | gojq -c '.[0].silent_cpus')" = '[]' ] || fail 'a CPU is gone'
crtos down || fail down
rmmod attack
complaints | grep -v -e AMD-Vi -e 'amd_iommu_report_page_fault: .* callbacks suppressed' && fail dmesg
exit $failed
