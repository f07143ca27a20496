#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What root in Linux does to an 82574L of the realm: see hostile-card.sh.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# packages: pciutils,arping
# uses: net hostile-card
# full: ALL=yes
# tier: full
# timeout: 600
