#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A datagram of UDP between a program of Linux and one of the realm by the virtual Ethernet, and
# between two of Linux by a pair of Linux's (veth): how many instructions pass, there and back.
# After a burst that takes more than its share of the CPU the realm's end rests, and goes on.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# shared: yes
# packages: iperf3
# uses: ethernet
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
count=200
program=$PROGRAMS/ether-latency
modprobe -a crtos veth || exit 1
in_memory crtos "$program" ip taskset gojq iperf3
echo -1 >/proc/sys/kernel/sched_rt_runtime_us

# measure WHAT BOUND COMMAND...: asks, and says what it took; fails above so much there and back.
measure() {
	local what=$1 bound=$2 there most back most_back both most_both
	shift 2
	read -r there most back most_back both most_both < <("$@") || fail "$what: nothing measured"
	echo "$what: median $there ns there (most $most), $back back ($most_back), $both both ($most_both)"
	[ "${both:-$((bound + 1))}" -le "$bound" ] || fail "$what: more than $bound ns"
}

# Linux alone: programs on two CPUs.
ip netns add peer
ip link add name near type veth peer name far netns peer
ip address add 10.7.0.1/24 dev near && ip link set near up
ip -n peer address add 10.7.0.2/24 dev far && ip -n peer link set far up
taskset -c 1 ip netns exec peer "$program" answer 10.7.0.2 &
await 'ip netns exec peer ss -Hlun | grep -q :7200'
measure 'Linux to Linux' 1000000 taskset -c 2 "$program" ask 10.7.0.2 $count
kill $!
ip netns delete peer

ethernet_up || exit 1
crtos run -- "$program" answer 10.9.0.2 &
await 'crtos ps | grep -q ether-latency'
sleep 0.5
# Remote calls of the program there.
remote() { crtos ps --json | gojq '[.[].remote_calls] | add'; }
before=$(remote)
measure 'Linux to the realm' 40000 taskset -c 2 "$program" ask 10.9.0.2 $count
[ "$(remote)" = "$before" ] || fail "remote calls: $before before, $(remote) now"
programs_end
taskset -c 1 "$program" answer 10.9.0.1 &
await 'ss -Hlun | grep -q :7200'
measure 'the realm to Linux' 40000 crtos run -- "$program" ask 10.9.0.1 $count
kill $!
crtos run -- iperf3 -4 -s -1 -B 10.9.0.2 >/dev/null &
await 'crtos ps | grep -q iperf3'
sleep 0.5
timeout 5 iperf3 -4 -c 10.9.0.2 -n 256K | grep sender || fail 'a burst'
timeout 1 busybox ping -q -c 1 -W 1 10.9.0.2 >/dev/null || fail 'after a burst'
crtos down --force || fail down
echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
exit $failed
