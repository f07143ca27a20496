#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As remapping.sh, for an IOMMU of AMD's kind: entries for interrupts and of devices, messages that
# would pass the IOMMU by, messages of the IOMMU itself, and memory to which it stores.
# Not on 6.1: its handler of the unit's interrupts goes on until bits of the unit's status are clear
# that QEMU's unit sets when they are to be cleared.
# tier: full
# kernels: 6.12
# realm: no
# icount: yes
# devices: yes
# iommu: amd
# timeout: 600
# uses: victim space remapping-amd
set -u
attack_remapping 128
