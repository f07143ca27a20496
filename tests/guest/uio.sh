#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Unmodified programs drive a PCI function through UIO, and through the files that Linux has for its
# registers: tests/abi/uio.c and tests/abi/resource.c run under Linux, and then in the realm, which
# has the function.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# packages: pciutils
# devices: yes
# uses: edu alike uio
# timeout: 900
set -u
drive_by_uio
