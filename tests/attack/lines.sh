#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux attacks an interrupt line of the realm: it writes the entry of the I/O APIC, forges the
# entry of the IOMMU that this one names, and has other devices and pins name it. Nothing reaches
# the realm with a vector that it did not ask for, and the line works.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# uarts: isa
# uses: lines
# timeout: 600
# `line` and `apic` are those of common/lines.sh.
# shellcheck disable=SC2154
set -u
begin
# In the IOMMU's format, and the number of an entry that is not Linux's.
(($line >> 48 & 1)) || fail "the entry is not remapped: $line"
number=$(($line >> 49 & 0x7fff | ($line >> 11 & 1) << 15))
[ $number -ge 65520 ] || fail "entry $number is Linux's"
overwrite
# Fixed, to CPU 3, by a vector of its choice; an NMI; by the line's own vector. For everybody, and
# for the function as which the I/O APIC sends.
to=$((1 | apic << 32))
for source in 0 $((1 << 18 | 0xf0f8)); do
	for low in $((to | 96 << 16)) $((to | 4 << 5)) $((to | 0xd0 << 16)); do
		attack remapped $number "$low" $source >/dev/null || fail 'no entry is forged'
		is_kept "$(printf 'forged %#x' "$low")"
		asks 'forged'
	done
done
calls
finish
