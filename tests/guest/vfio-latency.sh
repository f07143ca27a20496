#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# From the message of a PCI function to the instruction after a program's read of an eventfd, by
# VFIO: how many instructions that takes under Linux, and in the realm, where it causes no exit.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# shared: yes
# devices: yes
# uses: edu vfio
# timeout: 900
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
bound=1300 limit=4000
program=$PROGRAMS/uio-latency
in_memory crtos "$program" busybox chrt jq taskset
drives_by_vfio "$edu" || exit 1

echo -1 >/proc/sys/kernel/sched_rt_runtime_us
taskset -c 3 "$program" vfio messages "$count" >out &
child=$!
# Linux has its handler where the interrupt is bound to.
await "grep -q 'vfio-msi' /proc/interrupts"
irq=$(awk '/vfio-msi/ { sub(":", "", $1); print $1 }' /proc/interrupts)
echo 3 >"/proc/irq/$irq/smp_affinity_list"
wait $child || fail 'nothing measured under Linux'
read -r _ median most _ <out
echo "Linux $(uname -r): $count interrupts, median $median ns, maximum $most ns"

crtos up --cpus 3 --memory 256M || exit 1
crtos device add "$edu" --no-reset || exit 1
read -r _ median most _ < <(crtos run -- "$program" vfio messages "$count") ||
	fail 'nothing measured in the realm'
echo "realm: $count interrupts, median $median ns, maximum $most ns"
[ "$median" -le $bound ] || fail "more than $bound ns"
[ "$most" -le $limit ] || fail "more than $limit ns at most"
crtos run -- "$program" vfio messages "$count" 4 >out &
child=$!
no_exits_meanwhile $child 3 || fail exits
crtos down || fail down
drives_no_more "$edu"
exit $failed
