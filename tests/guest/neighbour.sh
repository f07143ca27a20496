#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A thread that changes memory does not delay another one of its program that has a higher priority:
# what it holds then, it holds for no longer than a page takes. In virtual time, on one CPU.
# tier: full
# kernels: 6.1
# icount: yes
# turns: short
# shared: yes
# timeout: 900
set -u
# Above what a wake-up takes beside a thread that computes. A page of 4 KiB takes 3,000, a block of
# 2 MiB 260,000; what other CPUs do meanwhile counts in virtual time, and was up to 8,000.
most=40000
neighbour() { in_memory "$PROGRAMS/neighbour"; crtos run -- "$PROGRAMS/neighbour" "$1"; }
alone=$(neighbour nothing) || exit 1
echo "latest of 2000 wake-ups beside nothing: $alone ns"
failed=0
for what in map protect move replace share lock discard; do
	latest=$(neighbour "$what") || exit 1
	echo "beside $what: $latest ns"
	[ $((latest - alone)) -le $most ] || { echo "FAILED $what delays by $((latest - alone)) ns, not $most"; failed=1; }
done
exit $failed
