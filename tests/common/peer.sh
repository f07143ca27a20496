# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# The other end of the wire as another machine: a network namespace, so that what Linux sends to it
# from near goes over the wire.

# peer: gives the namespace `peer` the interface far. After `wire`.
peer() {
	ip netns add peer && ip link set far netns peer || return 1
	ip -n peer link set lo up
	ip -n peer address add 10.9.0.2/24 dev far && ip -n peer link set far up || return 1
	# What comes for a group from no known network.
	ip -n peer route add 224.0.0.0/4 dev far
	# Each datagram that nobody wants is answered, not some in a second.
	over_there sysctl -qw net.ipv4.icmp_ratelimit=0 || return 1
	await '[ "$(ip netns exec peer cat /sys/class/net/far/carrier)" = 1 ]'
}

# over_there COMMAND...: runs it there.
over_there() { ip netns exec peer "$@"; }
# there COMMAND...: the same, for a minute at most.
there() { over_there timeout 60 "$@"; }
# listens PORT: waits until somebody there listens.
listens() { await "over_there ss -Hltn | grep -q :$1"; }
# alone_again: ends what runs there, and Linux has far without the namespace.
alone_again() {
	ip netns pids peer | xargs -r kill
	ip netns del peer && await '[ -e /sys/class/net/far ]'
}
