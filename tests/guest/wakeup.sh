#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The path from a timer's deadline to the program, in instructions: in the realm and in the idle
# Linux beside it.
# kernels: 6.1
# more kernels: 6.12
# icount: yes
# realm: no
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
crtos up --cpus 3 --memory 512M || exit 1
trap 'crtos down' EXIT
# One wake-up in some thousands meets Linux's work on another virtual CPU and is late by that (see
# docs/measuring.md). So one of three tries has to be without.
for _ in 1 2 3; do
	chrt -f 80 crtos run -- "$PROGRAMS/periodic" 1000 1 >realm || exit 1
	chrt -f 80 taskset -c 1 "$PROGRAMS/periodic" 1000 1 >linux || exit 1
	read -r count least mean most <realm
	read -r linux_count linux_least linux_mean linux_most <linux
	echo "instructions from deadline to program: least, mean, most of wake-ups"
	echo "realm: $least $mean $most of $count"
	echo "Linux: $linux_least $linux_mean $linux_most of $linux_count"
	[ "$mean" -le 1500 ] || exit 1
	[ "$most" -gt 2000 ] || exit 0
done
exit 1
