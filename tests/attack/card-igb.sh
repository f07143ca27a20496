#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What root in Linux does to an 82576 of the realm: see hostile-card.sh.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: igb
# packages: pciutils,arping
# uses: net hostile-card
# full: ALL=yes
# timeout: 600
# tier: full
