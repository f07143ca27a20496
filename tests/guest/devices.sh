#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A disk and network cards that master the bus go on while the realm comes and goes, and the
# hypervisor takes the IOMMU over and gives it back: nothing that is read was not written, no
# packet is lost, no fault is reported.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# devices: yes
# packages: fio,iperf3
# full: ROUNDS=100
# timeout: 1800
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
# packets NUMBER DIRECTION: that a card counts.
packets() {
	ip -n "end$1" -s -j link show "${cards[$1]}" | gojq ".[0].stats64.$2.packets"
}
modprobe -a e1000e crtos || exit 1
# The cards are in worlds of their own, or Linux would not use the wire.
cards=() early=()
for device in /sys/bus/pci/drivers/e1000e/0000*/net/*; do cards+=("${device##*/}"); done
for number in 0 1; do
	ip netns add end$number
	# Cards count what they send to groups, and not what comes for groups that are not theirs.
	ip netns exec end$number sysctl -q net.ipv6.conf.all.disable_ipv6=1
	ip link set "${cards[number]}" netns end$number
	ip -n end$number address add 10.0.0.$((number + 1))/24 dev "${cards[number]}"
	ip -n end$number link set "${cards[number]}" up
done
await 'ip netns exec end0 busybox ping -q -c 1 -W 1 10.0.0.2 >/dev/null' || fail 'no wire'
# What was sent before the other card listened.
for number in 0 1; do
	early+=($(($(packets $number tx) - $(packets $((1 - number)) rx))))
done
ip netns exec end0 iperf3 --server --one-off >/dev/null &
sleep 1
ip netns exec end1 iperf3 --client 10.0.0.1 --udp --bitrate 2M --time 3600 >iperf.log &
net=$!
disk_goes_on "${ROUNDS:-3}"
[ -d /proc/$net ] || fail 'the network'
kill -INT $net
wait $net
sleep 1
for number in 0 1; do
	sent=$(packets $number tx) came=$(packets $((1 - number)) rx)
	echo "card $number: $sent packets sent, $came arrived"
	[ $((sent - came)) = "${early[number]}" ] || fail "packets are lost, ${early[number]} before"
done
[ "$sent" -gt 200 ] || fail 'too few packets'
crtos log | grep IOMMU | tail -2
exit $failed
