#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What a byte costs that iperf3 moves: between two programs of Linux by a pair of Linux's (veth),
# and between Linux and the realm by the virtual Ethernet: by TCP both ways, by UDP to the other
# end, also with jumbo frames. Virtual time is the instructions of all CPUs, with waits that nobody
# fills, such as the rests of the realm's end, which works for a quarter of the time at most.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# shared: yes
# packages: iperf3
# uses: ethernet
# tier: full
# timeout: 3000
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
runs=${RUNS:-5} bytes=${BYTES:-1M}
# What a byte may cost by the virtual Ethernet in the median, in hundredths of an instruction.
bound=${BOUND:-6000}
modprobe -a crtos veth || exit 1
in_memory crtos iperf3 ip gojq

# cost OPTION...: runs iperf3, and says what a byte took that came, in hundredths of an instruction,
# and which part of the datagrams was lost, in tenths of a percent.
cost() {
	timeout 20 iperf3 -4 -J -c "$peer" -n "$bytes" "$@" >said 2>err || return
	gojq -r '.end | if .sum_received then [.sum_received.seconds / .sum_received.bytes, 0] else
		[.sum.seconds / (.sum.bytes * (1 - .sum.lost_packets / .sum.packets)),
		.sum.lost_packets / .sum.packets * 1000] end |
		[.[0] * 1e11, .[1]] | map(floor) | @tsv' said
}

# measure WHAT MTU: by each way, with datagrams that fill a frame.
measure() {
	local what=$1 length=$(($2 - 28)) way options all median most lost
	for way in "TCP there" "TCP back:-R" "UDP there:-u -b 0 -l $length"; do
		all=()
		lost=0
		for _ in $(seq "$runs"); do
			read -ra options < <(cut -s -d: -f2 <<<"$way")
			read -r one part < <(cost "${options[@]}") ||
				{ fail "$what, $way: $(head -c 500 said) $(cat err)"; return; }
			all+=("$one")
			[ "$part" -le "$lost" ] || lost=$part
		done
		mapfile -t all < <(printf '%s\n' "${all[@]}" | sort -n)
		median=${all[$((runs / 2))]} most=${all[-1]}
		printf '%s, MTU %d, %s: median %d.%02d instructions a byte (most %d.%02d), lost %d.%d %%\n' \
			"$what" "$2" "${way%%:*}" $((median / 100)) $((median % 100)) $((most / 100)) \
			$((most % 100)) $((lost / 10)) $((lost % 10))
		[ "$what" = veth ] || [ "$median" -le "$bound" ] || fail "$what, $way: more than $bound"
	done
}

ip netns add peer
ip link add name near type veth peer name far netns peer
ip address add 10.7.0.1/24 dev near && ip link set near up
ip -n peer address add 10.7.0.2/24 dev far && ip -n peer link set far up
ip netns exec peer iperf3 -4 -s >/dev/null 2>&1 &
server=$!
await 'ip netns exec peer ss -Hltn | grep -q :5201'
peer=10.7.0.2
for mtu in 1500 9000; do
	ip link set near mtu $mtu && ip -n peer link set far mtu $mtu || fail "mtu $mtu"
	measure veth $mtu
done
kill $server
ip netns delete peer

ethernet_up || exit 1
peer=10.9.0.2
for mtu in 1500 9000; do
	ip link set crtos0 mtu $mtu || fail "mtu $mtu"
	# A listener has the MTU with which it began.
	crtos run -- iperf3 -4 -s -B 10.9.0.2 >/dev/null 2>&1 &
	await 'timeout 5 iperf3 -4 -c 10.9.0.2 -n 64K >/dev/null 2>&1' 20 || fail 'no server'
	measure crtos0 $mtu
	programs_end
	wait
done
crtos down --force || fail down
exit $failed
