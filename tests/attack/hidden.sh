#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What the hypervisor and a cell have of the memory: Linux's kernel reads none of it, beside a cell
# and behind one. A CPU that knows where a page lies that a cell gets has forgotten it before the
# cell has contents.
# kernels: 6.12
# more kernels: 6.1
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
# forgets HOW: whether CPU 1 does when a cell for CPU 2 gets contents, or starts.
forgets() {
	local before since
	read -r before since < <(taskset -c 0 bash -c "echo stale $1 1 2 >/sys/kernel/debug/attack" &&
		cat /sys/kernel/debug/attack)
	echo "$1: read $before times before, $since times since"
	[ "${before:-0}" -ge 1000 ] || fail "$1: nobody reads"
	[ "${since:-1}" = 0 ] || fail "$1: a CPU of Linux reads what the cell has"
}
for _ in 1 2 3; do forgets load; done
echo 0 >/sys/devices/system/cpu/cpu2/online || fail 'CPU 2 stays'
for _ in 1 2 3; do forgets start; done
echo 1 >/sys/devices/system/cpu/cpu2/online || fail 'CPU 2 does not come back'
crtos cell destroy victim || fail destroy
hides 'behind a cell' $own
crtos down || fail down
[ "$(attack hidden)" = '0 0' ] || fail "pages stay hidden: $(attack hidden)"
rmmod attack
complaints | grep . && fail dmesg
exit $failed
