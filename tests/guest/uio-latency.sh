#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# From the interrupt of a PCI function to the instruction after a program's read: how many
# instructions that takes under Linux, and in the realm, where it causes no exit.
# kernels: 6.12
# more kernels: 6.1
# icount: yes
# turns: short
# realm: no
# shared: yes
# devices: yes
# uses: edu exits
# timeout: 900
# tier: full
# full: COUNT=2000
# Variables are those of common/edu.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
place=/sys/bus/pci/devices/$edu
count=${COUNT:-200}
# What the realm's way may take, in instructions: in the median, and at most, which has turns of
# other CPUs in it when they work.
bound=1300 limit=4000
program=$PROGRAMS/uio-latency
node() { local found; found=$(ls "$place/uio") && echo "/dev/$found"; }
in_memory crtos "$program" busybox chrt gojq taskset
modprobe -a uio_pci_generic crtos || exit 1

echo uio_pci_generic >"$place/driver_override"
echo "$edu" >/sys/bus/pci/drivers_probe
await '[ -c "$(node 2>/dev/null)" ]' || fail 'Linux has no device'
irq=$(cat "$place/irq")
echo 3 >"/proc/irq/$irq/smp_affinity_list"
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
taskset -c 3 "$program" "$(node)" "$place/config" "$count" >found ||
	fail 'nothing measured under Linux'
read -r _ median most _ <found
echo "Linux $(uname -r): $count interrupts, median $median ns, maximum $most ns"
echo "$edu" >"$place/driver/unbind"
echo >"$place/driver_override"

crtos up --cpus 3 --memory 256M || exit 1
crtos device add "$edu" --no-reset || exit 1
await '[ -c "$(node 2>/dev/null)" ]' || fail 'there is no device'
# Other CPUs, if they work, take their turns meanwhile: a maximum counts if it comes three times.
for _ in {1..3}; do
	crtos run -- "$program" "$(node)" messages "$count" >found || fail 'nothing measured in the realm'
	read -r _ median most _ <found
	echo "realm: $count interrupts, median $median ns, maximum $most ns"
	[ "$most" -gt $limit ] || break
done
[ "$median" -le $bound ] || fail "more than $bound ns"
[ "$most" -le $limit ] || fail "more than $limit ns at most"
no_exits 3 crtos run -- "$program" "$(node)" messages "$count" 4
crtos down || fail down
exit $failed
