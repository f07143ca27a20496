#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Cells of one and two CPUs, started and stopped many times; launch and leave many times.
# kernels: 6.1 6.12-rt
# more kernels: 6.1-rt 6.12
# realm: no
# shared: yes
# timeout: 600
# full: ROUNDS=8
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
word() { crtos cell shared "$1" --offset "$2" --length 8 --raw | od -An -tu8 | tr -d ' '; }
modprobe crtos || exit 1
dmesg --clear
for round in $(seq "${ROUNDS:-2}"); do
	crtos cell create pair --cpus 2-3 --memory 8M >/dev/null || { fail 'create'; break; }
	for _ in $(seq 8); do
		crtos cell start pair $inmates/latency.elf --command-line 'period=500 ticks=1000000' ||
			{ fail "start in round $round"; break 2; }
		await '[ "$(word pair 0)" -gt 5 ] && [ "$(word pair 1024)" -gt 5 ]'
		[ "$(word pair 0)" -gt 5 ] || fail 'CPU 0 of the cell does not tick'
		[ "$(word pair 1024)" -gt 5 ] || fail 'CPU 1 of the cell does not tick'
		crtos cell stop pair || fail 'stop'
	done
	crtos cell destroy pair || fail 'destroy'
	crtos down || fail 'down'
	[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'CPUs online'
done
complaints | grep . && fail 'dmesg'
exit $failed
