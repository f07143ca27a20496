#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# In a realm of two CPUs, threads wake each other across CPUs, are moved, preempt each other, and
# lose no wake-up. Programs see Linux's numbers of the CPUs.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# icount: yes
# shared: yes
# timeout: 900
# full: ROUNDS=1000000
set -u
ABI=/usr/lib/crtos-tests/abi
crtos up --cpus 2,3 --memory 512M || exit 1
crtos run -- "$ABI/cpus" "${ROUNDS:-5000}" >realm || { cat realm; exit 1; }
for program in scheduling threads signals memory replies; do
	in_memory "$ABI/$program" || exit 1
	timeout 100 "$ABI/$program" >linux
	timeout 100 crtos run -- "$ABI/$program" >realm
	cmp linux realm || { diff linux realm; exit 1; }
done
# Programs side by side keep their registers wherever they go.
"$ABI/floating" >linux
for number in 1 2 3 4 5; do
	crtos run -- "$ABI/floating" >realm.$number &
done
wait
for number in 1 2 3 4 5; do
	cmp linux realm.$number || exit 1
done
crtos down
