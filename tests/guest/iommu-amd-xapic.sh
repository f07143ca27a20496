#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An IOMMU of AMD's kind with entries of 128 bits for interrupts, and CPUs without x2APIC mode.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# tier: full
# uses: edu
# packages: fio
# iommu: amd,xtsup=off
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
dmesg | grep -q "x2apic: IRQ remapping doesn't support X2APIC mode" || fail 'x2APIC mode'
attacker || exit 1
(($(attack unit 0x18) >> 17 & 1)) || fail 'entries have 32 bits'
rmmod attack
disk_goes_on 2
cell_has_edu
exit $failed
