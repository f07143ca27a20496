#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of the realm have a PCI function transfer to what is not theirs, or not any more, and
# Linux takes it away from below them: nobody's memory changes, and all of it is given back.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# uses: edu vfio hostile-vfio
# timeout: 900
# full: ROUNDS=40
set -u
attack_by_vfio
