#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program in the realm keeps its period of 1 ms while programs of a member, on the same CPU, use
# up the kernel's heap.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# uses: member hostiles
# tier: full
# timeout: 1800
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
in_memory crtos "$PROGRAMS/periodic" "$PROGRAMS/heap-hostile" busybox chrt gojq setpriv
crtos up --cpus 3 --memory 256M --private 32M || exit 1
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
dmesg --clear
# As tests/guest/neighbour.sh has it, with what a wake-up takes.
keeps_period 60000 hostiles ended holes 2 || fail holes
keeps_period 60000 hostiles ended objects 2 || fail objects
keeps_period 60000 hostiles ended descriptors 10 || fail descriptors
complaints | grep . && fail dmesg
crtos down || fail down
exit $failed
