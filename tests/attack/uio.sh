#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of the realm misuse a PCI function that they drive, and Linux takes it away from below
# them: the realm goes on, and a program loses what it had by a signal.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# packages: pciutils
# devices: yes
# uses: edu space hostile-uio
# timeout: 900
# full: ROUNDS=40
set -u
attack_by_uio
