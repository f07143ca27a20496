#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An IOMMU of AMD's kind with entries of 32 bits for interrupts, and CPUs without x2APIC mode. Linux
# has these where a processor does not store 128 bits at once.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: edu
# packages: fio
# iommu: amd,xtsup=off
# boot: clearcpuid=cx16
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
dmesg | grep -q "x2apic: IRQ remapping doesn't support X2APIC mode" || fail 'x2APIC mode'
attacker || exit 1
(($(attack unit 0x18) >> 17 & 1)) && fail 'entries have 128 bits'
rmmod attack
disk_goes_on 2
cell_has_edu
exit $failed
