#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The broadcast manager sends a frame each millisecond: how far from that frames come, under Linux
# and in the realm, while nothing else runs and while hackbench does. In virtual time.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# can: yes
# packages: rt-tests
# tier: full
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
# What an interval may differ by in the realm, with turns of other CPUs.
limit=20000 frames=500
program=$PROGRAMS/can-period
modprobe -a kvaser_pci can_raw can_bcm crtos || exit 1
await '[ -e /sys/class/net/can1 ]' || exit 1
in_memory crtos "$program" chrt taskset hackbench
for name in can0 can1; do
	ip link set $name type can bitrate 1000000 && ip link set $name up || exit 1
	irq=$(cat /sys/class/net/$name/device/irq)
	echo 3 >"/proc/irq/$irq/smp_affinity_list"
done
echo -1 >/proc/sys/kernel/sched_rt_runtime_us

# measure WHO COMMAND...: idle, and under load; the most that an interval differed by.
measure() {
	local who=$1 load least usual last
	shift
	most=0
	for load in idle hackbench; do
		if [ $load = hackbench ]; then
			hackbench -l 1000000 -g 4 >/dev/null 2>&1 &
			sleep 0.3
		fi
		"$@" "$program" can0 can1 "$frames" >found || fail "$who, $load: nothing measured"
		read -r least usual longest last <found
		echo "$who, $load: intervals $least to $longest ns off, 99 % within $usual ns;" \
			"the last frame $last ns off the grid"
		most=$((longest > most ? longest : most)) most=$((-least > most ? -least : most))
		if [ $load = hackbench ]; then
			pkill -KILL hackbench
			wait 2>/dev/null
		fi
	done
}
measure "Linux $(uname -r)" taskset -c 3 chrt -f 80
crtos up --cpus 3 --memory 256M --device can0 --device can1 || exit 1
measure realm chrt -f 80 crtos run --
[ "$most" -le $limit ] || fail "more than $limit ns"
crtos down || fail down
exit $failed
