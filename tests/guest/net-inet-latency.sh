#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A datagram of UDP over the wire to another thread of the same CPU, and back: how many instructions
# that takes under Linux, and in the realm, which has both cards.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# shared: yes
# devices: yes
# uses: net peer
# tier: full
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
# What the realm's way may take, in instructions: in the median, and at most, which has turns of
# other CPUs in it when they work.
bound=20000 limit=60000 count=200
program=$PROGRAMS/udp-latency
in_memory crtos "$program" ip chrt taskset gojq
wire && peer || exit 1
for place in near far; do
	device=$(over_there readlink -f /sys/class/net/$place/device 2>/dev/null ||
		readlink -f /sys/class/net/$place/device)
	for line in "$device"/msi_irqs/*; do
		echo 3 >"/proc/irq/${line##*/}/smp_affinity_list"
	done
done
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
taskset -c 3 "$program" $count /run/netns/peer >found || fail 'nothing measured under Linux'
read -r median most <found
echo "Linux $(uname -r): $count datagrams and back, median $median ns, maximum $most ns"
alone_again || exit 1
ip address replace 10.9.0.2/24 dev far && ip link set far up
crtos up --cpus 3 --memory 256M --device near --device far || exit 1
crtos run -- "$program" $count >found || fail 'nothing measured in the realm'
read -r median most <found
echo "realm: $count datagrams and back, median $median ns, maximum $most ns"
[ "$median" -le $bound ] || fail "more than $bound ns"
[ "$most" -le $limit ] || fail "more than $limit ns at most"
crtos down || fail down
echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
exit $failed
