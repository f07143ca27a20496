#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A cell rings its doorbell as fast as it can: the CPU of Linux on which it rings has one interrupt
# for each 4 us of it, 16 more, and time for its own programs. In virtual time.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# icount: yes
# timeout: 600
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
# Doorbells that CPU 0 has heard.
heard() { awk '/crtos-doorbell/ { sum += $2 } END { print sum + 0 }' /proc/interrupts; }
microseconds() { echo $((${EPOCHREALTIME/./} - $1)); }
# Microseconds that some work takes on a CPU.
work() {
	local begun=${EPOCHREALTIME/./}
	taskset -c "$1" awk 'BEGIN { for (i = 0; i < 300000; i++) sum += i }'
	microseconds "$begun"
}

in_memory awk taskset
taskset -pc 1 $$ >/dev/null
crtos cell create flood --cpus 3 --memory 4M || exit 1
dmesg --clear
alone=$(work 0)
crtos cell start flood $inmates/prober.elf --command-line doorbell-flood || exit 1
flooded() { [ "$(heard)" -gt 1000 ]; }
await flooded || fail 'the cell does not ring'
for _ in 1 2 3; do
	before=$(heard) begun=${EPOCHREALTIME/./}
	sleep 0.1
	rings=$(($(heard) - before)) took=$(microseconds "$begun")
	# One in a hundred more: reading them takes time as well.
	most=$((16 + took / 4 * 101 / 100))
	echo "$rings doorbells in $took us"
	[ "$rings" -gt $((most / 2)) ] || fail 'that is no flood'
	[ "$rings" -le $most ] || fail "more than $most"
done
beside=$(work 0)
echo "work takes $beside us beside the flood, $alone without"
[ "$beside" -lt $((3 * alone)) ] || fail 'the cell holds the CPU'
[ "$(crtos cell list --json | gojq -r '.[0].state')" = running ] || fail 'the cell does not run'
# It hears of its end.
timeout 60 crtos cell stop flood || fail 'stop'
crtos cell destroy flood || fail destroy
[ "$(taskset -c 0 echo there)" = there ] || fail 'nothing runs on CPU 0'
complaints | grep . && fail dmesg
exit $failed
