#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# I/O ports are to programs of the realm what they are under Linux: tests/abi/ports.c runs under
# Linux, and then in the realm, which has the ports alone. What it does not have stays Linux's.
# kernels: 6.1 6.12
# realm: no
# shared: yes
# parallel: yes
# uses: alike
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
program=/usr/lib/crtos-tests/abi/ports
natively 60 $program
crtos up --cpus 3 --memory 256M --port 0x378-0x37b:exclusive --port 0x37e-0x37f || exit 1
alike 100 $program
# A transfer ends where the realm's ports do.
count=$(crtos run -- dd if=/dev/port bs=16 skip=$((0x37)) count=1 status=none 2>why | wc -c)
[ "$count" = 0 ] && grep -q 'not permitted' why || fail "a port of Linux: $count, $(cat why)"
crtos run -- python3 -c "
import os
file = os.open('/dev/port', os.O_RDWR)
print(len(os.pread(file, 16, 0x379)), len(os.pread(file, 16, 0x37e)))
for port in 0x37c, 0x70, 0xffff:
    try: os.pread(file, 1, port)
    except PermissionError: print('not permitted')
" >got
printf '3 2\nnot permitted\nnot permitted\nnot permitted\n' | diff - got || fail 'the ends'
crtos down || fail 'down'

# Without ports of the realm, the file is Linux's.
crtos up --cpus 3 --memory 256M || exit 1
crtos run -- dd if=/dev/port bs=1 skip=$((0x64)) count=1 status=none of=got || fail 'remotely'
[ "$(wc -c <got)" = 1 ] || fail 'remotely, nothing'
crtos down || fail 'down'
exit $failed
