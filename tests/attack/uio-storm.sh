#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program in the realm keeps its period of 1 ms while another has a PCI function interrupt as
# often as it can: the function is silenced.
# kernels: 6.12
# more kernels: 6.1
# icount: yes
# turns: short
# realm: no
# shared: yes
# devices: yes
# uses: edu
# timeout: 900
# Variables are those of common/edu.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
place=/sys/bus/pci/devices/$edu
in_memory crtos "$PROGRAMS/periodic" "$PROGRAMS/uio-hostile" busybox chrt gojq
modprobe crtos
crtos up --cpus 3 --memory 256M || exit 1
crtos device add "$edu" --no-reset || exit 1
await '[ -d "$place/uio" ]' || exit 1
device=/dev/$(ls "$place/uio")
await '[ -c "$device" ]' || exit 1
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
storm() { crtos run -- "$PROGRAMS/uio-hostile" "$device" storm; }
keeps_period 5000 storm || fail 'the program has lost its period'
crtos log | grep -q "$edu interrupts too often" || fail 'it is not silenced'
crtos down || fail down
exit $failed
