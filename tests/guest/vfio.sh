#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An unmodified program drives a PCI function through VFIO: tests/abi/vfio.c runs under Linux, and
# then in the realm, which has the function.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# uses: edu alike vfio
# timeout: 900
set -u
alike_by_vfio
