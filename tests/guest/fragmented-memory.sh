#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux has memory, but hardly in blocks of 2 MiB, since pages that cannot be moved lie all over it.
# `crtos up` says how much it could have had, leaves all as it was, and takes that much, or pages of
# a pool that was reserved before. What docs/troubleshooting.md says to do helps once the pages are
# free.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# tier: full
# timeout: 400
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe crtos
dmesg --clear
pool=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
echo 64 >$pool
[ "$(cat $pool)" = 64 ] || { fail 'no pool'; exit 1; }

# Pipes hold two pages of each 2 MiB, which are in use by nobody else.
cat >scatter.c <<'C'
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
enum { PAGE = 4096, STEP = 1 << 20, SLOTS = 256 };
int main(int argc, char **argv)
{
	size_t size = strtoull(argv[argc - 1], 0, 0) << 20, held = SLOTS;
	char *all = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int ends[2];

	if (all == MAP_FAILED || madvise(all, size, MADV_NOHUGEPAGE))
		return 1;
	memset(all, 1, size);
	for (size_t at = 0; at < size; at += STEP, held++) {
		struct iovec page = { all + at, PAGE };

		if (held == SLOTS) {
			held = 0;
			if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, SLOTS * PAGE) < 0)
				return 2;
		}
		if (vmsplice(ends[1], &page, 1, 0) != PAGE)
			return 3;
	}
	munmap(all, size);
	puts("scattered");
	fflush(stdout);
	pause();
}
C
gcc -O2 -o scatter scatter.c || exit 1
available() { awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo; }
before=$(available)
./scatter $((before - 200)) >told & program=$!
await 'grep -q scattered told' 300 || { fail 'nothing is scattered'; exit 1; }
[ "$(available)" -gt 1024 ] || fail "Linux has $(available) MiB alone"

for _ in 1 2; do
	crtos up --cpus 3 --memory 768M 2>err && fail 'Linux has blocks for all that'
	for words in 'in blocks of 2 MiB were asked for, and [0-9]* MiB could be had' \
		'remedy: .*compact' 'explain memory-fragmented'; do
		grep -q "$words" err || { fail "it does not say: $words"; cat err; }
	done
	[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'a CPU is away'
done
had=$(sed -n 's/.* and \([0-9]*\) MiB could be had.*/\1/p' err)
echo "768 MiB asked for, $had MiB could be had, $(available) MiB available"
[ "$had" -lt 768 ] || fail "it could have had $had MiB"
crtos up --cpus 3 --memory 128M --memory-from hugetlb || fail 'the pool'
[ "$(crtos run -- echo there)" = there ] || fail 'run from the pool'
crtos down || fail 'down from the pool'

kill $program
wait $program 2>/dev/null
# As docs/troubleshooting.md has it.
echo 3 >/proc/sys/vm/drop_caches
echo 1 >/proc/sys/vm/compact_memory
crtos up --cpus 3 --memory 768M || fail 'up when the pages are free'
[ "$(crtos run -- echo there)" = there ] || fail run
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
