#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Futexes across the realms as futexes.sh has them, by programs that are linked with musl. Its
# locks, conditions and barriers are others than glibc's, and wait in other ways.
# kernels: 6.12
# more kernels: 6.1
# tier: full
# realm: no
# shared: yes
# full: COUNT=5000
# timeout: 1800
# uses: exchange
set -u
modprobe crtos	# Linux warns of modules that are not its own
dmesg --clear

crtos up --cpus 3 --memory 256M || exit 1
exchanges "$PROGRAMS/exchange-musl" 'Operation timed out' "${COUNT:-500}"
crtos run -- busybox true || exit 1
crtos down || exit 1
! complaints | grep .
