#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As cell-device-amd.sh, where the entries for the device's messages have 32 bits, and CPUs are not
# in x2APIC mode.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# smp: 5
# iommu: amd,xtsup=off
# boot: clearcpuid=cx16
# tier: full
# timeout: 1200
# full: COUNT=2048
# uses: victim edu hostile-device hostile-device-amd
set -u
attack_by_device
