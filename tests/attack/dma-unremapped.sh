#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As dma.sh, where Linux does not have interrupts remapped: the IOMMU is taken over all the same,
# and devices reach no memory of cells. That they interrupt CPUs of cells is told.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# boot: intremap=off
# timeout: 1200
# tier: full
# full: EVERY=yes
# uses: victim tables vt-d
# Variables of all are those of common/tables.sh.
# shellcheck disable=SC2034,SC2154
set -u
contexts=(top narrow domain contexts root pass off)
refused=()
told=(top narrow domain contexts root pass)
choose "${stores[*]} ${leaves[*]} ${odd[*]} ${contexts[*]}" 'mov root'
seldom
# Nobody has the unit remap interrupts later.
others() {
	local states
	is_unremapped
	states=$(($(attack unit 0x1c) & 0x86800000))
	attack unit 0x18 $((states | 1 << 25)) >/dev/null
	attack unit 0x18 $states >/dev/null
	[ "$(attack dma linux)" = fine ] || fail "Linux's device does not work"
	goes_on $program 'remapping on and off'
}
grep ' IR-' /proc/interrupts && exit 1
attack_by_tables
