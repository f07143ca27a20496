#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Entries of the IOMMU for interrupts, and messages of the IOMMU itself, that name a CPU of the
# realm or could take any CPU away.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# timeout: 600
# uses: remapping
set -u
attack_remapping
