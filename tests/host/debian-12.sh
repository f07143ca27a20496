#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A whole Debian 12 with systemd installs the packages, and a realm and a program in it are up after
# a reboot; both go on during an upgrade, and after a purge nothing is left.
# tier: full
# timeout: 12000
set -u
release=12
. tests/host/common/debian.sh
