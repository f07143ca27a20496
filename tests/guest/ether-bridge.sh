#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The realm in a network of Linux's: Linux's end of the virtual Ethernet is a port of a bridge that
# knows VLANs, untagged in VLAN 5; a station behind another port has tags. iperf3 goes through it
# both ways, with the realm as the server and as the client, also with jumbo frames. tcpdump sees it
# in both realms.
# kernels: 6.1 6.12
# realm: no
# shared: yes
# packages: tcpdump,ethtool,iperf3,python3-minimal
# uses: ethernet
# tier: full
# timeout: 1500
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe -a crtos af_packet bridge 8021q veth && dmesg --clear || exit 1
ethernet_up || exit 1
ip address flush dev crtos0

# What ethtool tells of Linux's end.
ethtool -i crtos0 >about
grep -qx 'driver: crtos' about && grep -qx 'bus-info: channel' about || fail "-i: $(cat about)"
ethtool -k crtos0 >features
for feature in scatter-gather tx-checksumming; do
	grep -qx "$feature: on" features || fail "-k: $feature"
done
for feature in tcp-segmentation-offload rx-vlan-offload; do
	grep -q "^$feature: off" features || fail "-k: $feature"
done
ethtool -K crtos0 tx off && ethtool -K crtos0 tx on || fail '-K'
for name in rung_realm rung_by_realm bad_frames full_ring; do
	ethtool -S crtos0 | grep -q "^ *$name: [0-9]*$" || fail "-S: $name"
done

ip netns add peer
ip link add name bridge0 type bridge vlan_filtering 1 vlan_default_pvid 0
ip link add near type veth peer name far netns peer
ip link set bridge0 up
ip link set near master bridge0 up && ip link set crtos0 master bridge0
bridge vlan add dev near vid 5
bridge vlan add dev crtos0 vid 5 pvid untagged
ip -n peer link add link far name far.5 type vlan id 5
ip -n peer address add 10.9.0.3/24 dev far.5
ip -n peer link set far up && ip -n peer link set far.5 up
over_there() { ip netns exec peer "$@"; }
reaches() { over_there busybox ping -q -c 1 -W 2 10.9.0.2 >/dev/null; }
await reaches 100 || fail 'the realm is not reached'

for mtu in 1500 9000; do
	for device in near crtos0 bridge0; do
		ip link set $device mtu $mtu || fail "$device: mtu $mtu"
	done
	ip -n peer link set far mtu $mtu && ip -n peer link set far.5 mtu $mtu || fail "far: mtu $mtu"
	over_there busybox ping -q -c 2 -W 5 -s $((mtu - 28)) 10.9.0.2 >/dev/null ||
		fail "ping, mtu $mtu"
	# What tcpdump sees: tags at the station's port, none in the realm.
	timeout 100 tcpdump -c 2 -n -e -i near icmp or vlan 5 >tagged 2>/dev/null &
	here tcpdump -c 2 -n -e -i crtos0 icmp >untagged 2>/dev/null &
	await 'reaches && [ "$(cat tagged | wc -l)" -ge 2 ] && [ "$(cat untagged | wc -l)" -ge 2 ]' 100 ||
		fail "tcpdump: $(cat tagged untagged)"
	grep -q 'vlan 5.*10.9.0.3 > 10.9.0.2: ICMP echo request' tagged || fail "$(cat tagged)"
	grep -q 'ethertype IPv4.*10.9.0.2 > 10.9.0.3: ICMP echo reply' untagged ||
		fail "$(cat untagged)"
	wait
	for options in '' -R '-u -b 20M' '-u -b 20M -R'; do
		here iperf3 -4 -s -1 -B 10.9.0.2 >/dev/null &
		server=$!
		# shellcheck disable=SC2086 # options
		await "timeout 60 ip netns exec peer iperf3 -4 -c 10.9.0.2 -n 4M $options >said" 50
		grep receiver said || fail "the realm serves, mtu $mtu, $options: $(cat said)"
		wait $server
		timeout 100 ip netns exec peer iperf3 -4 -s -1 -B 10.9.0.3 >/dev/null &
		server=$!
		await 'over_there ss -Hltn | grep -q :5201'
		# shellcheck disable=SC2086 # options
		here iperf3 -4 -c 10.9.0.3 -n 4M $options >said
		grep receiver said || fail "the station serves, mtu $mtu, $options: $(cat said)"
		wait $server
	done
done

# A VLAN on Linux's end itself: the realm's stack has nothing of frames with tags, while packet
# sockets have them whole, the longest included.
ip link set crtos0 nomaster
ip link delete near && ip link delete bridge0
ip link add link crtos0 name vlan6 type vlan id 6
ip address add 10.9.0.1/24 dev vlan6 && ip link set vlan6 up
ip neighbour replace 10.9.0.2 dev vlan6 lladdr "$(here cat /sys/class/net/crtos0/address)"
here tcpdump -c 1 -n -e -i crtos0 'greater 9018' >tagged 2>/dev/null &
dump=$!
answered=0
for _ in $(seq 30); do
	busybox ping -q -c 1 -W 1 -s 8972 10.9.0.2 >/dev/null && answered=1
	[ ! -s tagged ] || break
done
[ $answered = 0 ] || fail 'the realm answers a VLAN that it is not in'
grep -q 'length 9018:.*vlan 6' tagged || fail "with a tag: $(cat tagged)"
kill $dump 2>/dev/null
programs_end
wait
ip link delete vlan6
ethtool -S crtos0 | grep -q 'bad_frames: 0' || fail 'bad frames'
crtos down || fail down
ip netns delete peer
complaints | grep -v 'AMD Zen1' | grep . && fail dmesg
exit $failed
