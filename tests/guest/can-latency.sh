#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# From the interrupt of a CAN controller to the instruction behind a program's read: how many
# instructions that takes under Linux, and in the realm, where each frame interrupts once. A
# controller that interrupts all the time is silenced, and works by a timer until it is used anew.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# shared: yes
# can: yes
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
# What the realm's way may take, in instructions: in the median, and at most, which has turns of
# other CPUs in it when they work.
bound=2300 limit=12000 count=200
program=$PROGRAMS/can-latency
modprobe -a kvaser_pci can_raw crtos || exit 1
await '[ -e /sys/class/net/can1 ]' || exit 1
in_memory crtos "$program" ip chrt gojq taskset
ip link set can0 type can bitrate 500000 && ip link set can0 up || exit 1
# The other end is the program's alone.
other=$(basename "$(readlink -f /sys/class/net/can1/device)")
port=$(awk 'NR == 2 { print $1 }' "/sys/bus/pci/devices/$other/resource")
echo "$other" >"/sys/bus/pci/devices/$other/driver/unbind"
irq=$(cat /sys/class/net/can0/device/irq)
echo 3 >"/proc/irq/$irq/smp_affinity_list"
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
read -r median most < <(taskset -c 3 "$program" "$port" $count) ||
	fail 'nothing measured under Linux'
echo "Linux $(uname -r): $count frames, median $median ns, maximum $most ns"

range=$(printf '%#x-%#x:exclusive' "$port" $((port + 0x7f)))
crtos up --cpus 3 --memory 256M --port "$range" --device can0 || exit 1
read -r median most < <(crtos run -- "$program" "$port" $count) ||
	fail 'nothing measured in the realm'
echo "realm: $count frames, median $median ns, maximum $most ns"
[ "$median" -le $bound ] || fail "more than $bound ns"
[ "$most" -le $limit ] || fail "more than $limit ns at most"
crtos log | grep 'can0 interrupts too often' && fail 'an ordinary program has it silenced'
interrupts() { crtos stats --json | gojq '.realm.interrupts[] | select(.device == "can0") | .count'; }
await '[ "$(interrupts)" -ge $count ]' 100 || fail "stats: $(interrupts) interrupts"
[ "$(interrupts)" -lt $((count + count / 4)) ] || fail "$(interrupts) interrupts for $count frames"

chrt -f 10 crtos run -- "$program" "$port" flood 20000 || fail 'nothing comes'
crtos log | grep -q 'can0 interrupts too often, and is silenced' || fail 'it is not silenced'
# It interrupts again.
read -r median most < <(crtos run -- "$program" "$port" $count) || fail 'it does not go on'
echo "realm, afterwards: $count frames, median $median ns, maximum $most ns"
[ "$median" -le $bound ] || fail "afterwards more than $bound ns"
crtos log | tail -3
crtos down || fail down
echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
ip link set can0 down
echo "$other" >/sys/bus/pci/drivers/kvaser_pci/bind || fail 'the other end is not given back'
exit $failed
