#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What is kept of files makes room for a program that has nearly all memory and reads another file.
# kernels: 6.1
# realm: no
# shared: yes
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }

# read.py MIB FILE…: takes so much memory, MiB by MiB, and then reads the files by mapping them.
cat >read.py <<'END'
import mmap, sys
def read(path):
    with open(path) as file:
        with mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
            return sum(mapped[::4096])
taken = []
for count in range(int(sys.argv[1])):
    memory = mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE)
    for page in range(0, 1 << 20, 4096):
        memory[page] = 1
    taken.append(memory)
    print(count + 1, flush=True)
for path in sys.argv[2:]:
    print(path, read(path), flush=True)
END
for name in kept large small; do
	yes $name | head -c 12M >$name
done
truncate -s 1M small

crtos up --cpus 3 --memory 128M || exit 1
crtos run -- python3 read.py 128 >out 2>err
most=$(tail -1 out)
echo "most: $most MiB"
[ "$most" -gt 40 ] && [ "$most" -lt 128 ] || fail "all memory: $most MiB"
dmesg | grep 'crtos: process [0-9]* (python3) is killed: the realm has no memory left' || fail 'Linux does not say why'
crtos log --kernel | grep 'pid [0-9]*: killed: no memory is left' || fail 'nor does the realm'

for file in large small; do
	for left in 0 1 2; do
		wanted=$((most - 12 - left))
		crtos run -- python3 read.py 0 kept >/dev/null || fail kept
		crtos run -- python3 read.py $wanted $file >out 2>err || fail "$file with $wanted MiB: $?, $(tail -1 err)"
		python3 read.py 0 $file | cmp - <(tail -1 out) || fail "contents of $file"
	done
done
crtos down || fail down
rm kept large small
exit $failed
