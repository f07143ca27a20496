#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As remapping-amd.sh, for entries of 32 bits and CPUs without x2APIC mode. The message of the IOMMU
# itself is that in configuration space.
# Not beside Linux 6.1, whose thread for the unit's messages never ends here on QEMU: bits that it
# clears are set.
# kernels: 6.12
# realm: no
# devices: yes
# iommu: amd,xtsup=off
# boot: clearcpuid=cx16
# tier: full
# timeout: 600
# uses: victim space remapping-amd
set -u
dmesg | grep -q "x2apic: IRQ remapping doesn't support X2APIC mode" || exit 1
attack_remapping 32
