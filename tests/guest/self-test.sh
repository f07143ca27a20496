#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The kernel tests itself at boot: timers, priorities and their inheritance, queues, slices, address
# spaces, and what happens when memory is used up.
# kernels: 6.1
# icount: yes
# shared: yes
# realm: no
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
modprobe crtos || exit 1
crtos up --cpus 3 --memory 256M --kernel /usr/lib/crtos-tests/self-test.elf || exit 1
await "crtos log >log; grep -q 'self-test: passed' log" || { echo "FAILED"; tail -20 log; exit 1; }
echo x | crtos run -- cat | grep -q x || { echo "FAILED no program runs afterwards"; exit 1; }
crtos down
