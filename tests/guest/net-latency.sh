#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# From a program that sends a frame to the instruction behind another one's recv, and there and back
# again: how many instructions that takes under Linux, and in the realm, which has both cards.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# devices: yes
# uses: net
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
# What the realm's way may take, in instructions: in the median, and at most, which has turns of
# other CPUs in it when they work.
bound=12000 limit=40000 count=200
program=$PROGRAMS/net-latency
in_memory crtos "$program" ip chrt taskset jq
wire || exit 1
for place in near far; do
	for line in /sys/class/net/$place/device/msi_irqs/*; do
		echo 3 >"/proc/irq/${line##*/}/smp_affinity_list"
	done
done
echo -1 >/proc/sys/kernel/sched_rt_runtime_us

# measure PLACE COMMAND...: both, one after the other.
measure() {
	local place=$1 way median most
	shift
	for way in '' back; do
		# shellcheck disable=SC2086
		read -r median most < <("$@" "$program" near far $count $way) || fail "nothing measured in $place"
		echo "$place: $count frames${way:+ and }$way, median $median ns, maximum $most ns"
	done
	echo "$median $most" >last
}
measure "Linux $(uname -r)" taskset -c 3
crtos up --cpus 3 --memory 256M --device near --device far || exit 1
measure realm crtos run --
read -r median most <last
[ "$median" -le $bound ] || fail "more than $bound ns"
[ "$most" -le $limit ] || fail "more than $limit ns at most"
crtos log | grep 'interrupts too often' && fail 'an ordinary program has it silenced'
crtos down || fail down
exit $failed
