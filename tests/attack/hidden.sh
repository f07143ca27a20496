#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What the hypervisor and a cell have of the memory: Linux's kernel reads none of it, beside a cell
# and behind one. A CPU that knows where a page lies that a cell gets has forgotten it before the
# cell has contents.
# kernels: 6.1 6.12
# realm: no
# shared: yes
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
# The hypervisor has two blocks of 2 MiB for a machine with few CPUs.
own=1024
# hides WHEN PAGES: so many pages at least, of which Linux can read none.
hides() {
	local hidden seen
	read -r hidden seen < <(attack hidden)
	echo "$1: $hidden pages hidden, $seen read"
	[ "$hidden" -ge "$2" ] || fail "$1: $hidden pages hidden, not $2"
	[ "$seen" = 0 ] || fail "$1: Linux reads $seen pages"
}

attacker || exit 1
[ "$(attack hidden)" = '0 0' ] || fail "pages are hidden from the start: $(attack hidden)"
crtos cell create victim --cpus 3 --memory 8M >/dev/null || exit 1
dmesg --clear
hides 'beside a cell' $((own + 2048))
for _ in 1 2 3; do
	read -r before since < <(taskset -c 0 bash -c 'echo stale 1 2 >/sys/kernel/debug/attack' &&
		cat /sys/kernel/debug/attack)
	echo "read $before times before the cell has contents, $since times since"
	[ "${before:-0}" -ge 1000 ] || fail 'nobody reads'
	[ "${since:-1}" = 0 ] || fail 'a CPU of Linux reads what the cell has'
done
crtos cell destroy victim || fail destroy
hides 'behind a cell' $own
crtos down || fail down
[ "$(attack hidden)" = '0 0' ] || fail "pages stay hidden: $(attack hidden)"
rmmod attack
complaints | grep . && fail dmesg
exit $failed
