#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# From the message of a PCI function to the instruction behind a program's read of an eventfd, by
# VFIO: how many instructions that takes under Linux, and in the realm, where it causes no exit.
# kernels: 6.12
# more kernels: 6.1
# icount: yes
# turns: short
# realm: no
# shared: yes
# devices: yes
# uses: edu exits vfio
# timeout: 900
# tier: full
# full: COUNT=2000
# Variables are those of common/edu.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
export FUNCTION=$edu
count=${COUNT:-200}
# What the realm's way may take, in instructions: in the median, and at most, which has turns of
# other CPUs in it when they work.
bound=1400 limit=4000
program=$PROGRAMS/vfio-latency
in_memory crtos "$program" busybox chrt gojq taskset
drives_by_vfio "$edu" || exit 1

echo -1 >/proc/sys/kernel/sched_rt_runtime_us
# The interrupt is there once the program has begun, and comes to its CPU while that rests.
taskset -c 3 "$program" "$count" 2 >out &
child=$!
await 'grep -q vfio-msi /proc/interrupts' || fail 'no interrupt under Linux'
irq=$(awk '/vfio-msi/ { sub(":", "", $1); print $1 }' /proc/interrupts)
echo 3 >"/proc/irq/$irq/smp_affinity_list"
wait $child || fail 'nothing measured under Linux'
read -r median most _ <out
echo "Linux $(uname -r): $count messages, median $median ns, maximum $most ns"

crtos up --cpus 3 --memory 256M || exit 1
crtos device add "$edu" --no-reset || exit 1
# Other CPUs, if they work, take their turns meanwhile: a maximum counts if it comes three times.
for _ in {1..3}; do
	read -r median most _ < <(crtos run -- "$program" "$count") ||
		fail 'nothing measured in the realm'
	echo "realm: $count messages, median $median ns, maximum $most ns"
	[ "$most" -gt $limit ] || break
done
[ "$median" -le $bound ] || fail "more than $bound ns"
[ "$most" -le $limit ] || fail "more than $limit ns at most"
no_exits 3 crtos run -- "$program" "$count" 2
crtos down || fail down
drives_no_more "$edu"
exit $failed
