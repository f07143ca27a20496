#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The virtual Ethernet between Linux and the realm: Debian's programs reach each other over it in
# both directions, as over any interface of Linux's. Linux's end is a part of a bridge, has a VLAN,
# and is in another network namespace. It is there while the realm is.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# packages: tcpdump,ethtool,socat,iperf3,python3-minimal
# uses: ethernet
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe -a crtos af_packet bridge 8021q veth && dmesg --clear || exit 1

# What is refused.
! crtos up --cpus 3 --memory 256M --ethernet 10.9.0.2 2>/dev/null || fail 'without bits'
ip link add crtos0 type dummy
! crtos up --cpus 3 --memory 256M --ethernet 10.9.0.2/24 2>why || fail 'a name that is taken'
grep -q "interface 'crtos0'" why || fail "$(cat why)"
ip link delete crtos0

ethernet_up || exit 1
ethtool -i crtos0 | grep -qx 'driver: crtos' || fail "ethtool -i: $(ethtool -i crtos0)"
ethtool crtos0 | grep -q 'Link detected: yes' || fail 'no link'

# The realm answers an echo request, also one that fills a frame; both ends count the frames.
sent=$(counted tx_packets) came=$(counted rx_packets)
busybox ping -q -c 5 -W 5 10.9.0.2 >/dev/null || fail ping
busybox ping -q -c 5 -W 5 -s 1472 10.9.0.2 >/dev/null || fail 'ping of 1,500 bytes'
[ $(($(counted tx_packets) - sent)) -ge 10 ] && [ $(($(counted rx_packets) - came)) -ge 10 ] ||
	fail 'frames are not counted'

# UDP. What is bound to no address of it stays Linux's.
here socat -T 30 UDP4-LISTEN:5000,bind=10.9.0.2,fork PIPE 2>/dev/null &
await '[ "$(echo hello | socat -t 2 - UDP4:10.9.0.2:5000 2>/dev/null)" = hello ]' 100 ||
	fail 'UDP, Linux asks'
socat -T 30 UDP4-LISTEN:5001,bind=10.9.0.1,fork PIPE &
server=$!
await 'ss -Hlun | grep -q :5001'
[ "$(echo hello | here socat -t 5 - UDP4:10.9.0.1:5001)" = hello ] || fail 'UDP, the realm asks'
kill $server
here python3 -c 'import socket as s
with s.socket(s.AF_INET, s.SOCK_DGRAM) as a:
    a.bind(("127.0.0.1", 5002))
    print(a.recv(100).decode())' >got &
await 'ss -Hlun | grep -q 127.0.0.1:5002'
echo -n loop | socat - UDP4:127.0.0.1:5002
wait $!
[ "$(cat got)" = loop ] || fail 'another address is the realm'"'s"
programs_end

# TCP, as fast as it goes.
iperf3 -4 -s -1 -B 10.9.0.1 >/dev/null &
await 'ss -Hltn | grep -q :5201'
here iperf3 -4 -c 10.9.0.1 -n 2M | grep -e sender -e receiver || fail 'iperf3, the realm sends'
iperf3 -4 -s -1 -B 10.9.0.1 >/dev/null &
await 'ss -Hltn | grep -q :5201'
here iperf3 -4 -c 10.9.0.1 -n 2M -R | grep -e sender -e receiver || fail 'iperf3 -R'
for reverse in '' -R; do
	here iperf3 -4 -s -1 -B 10.9.0.2 >/dev/null &
	await "timeout 60 iperf3 -4 -c 10.9.0.2 -n 2M $reverse >said" 50
	grep -e sender -e receiver said || fail "iperf3 -s $reverse"
done
wait

# Packet sockets of both ends see what goes and what comes.
here tcpdump -c 4 -n -i crtos0 icmp >realm 2>/dev/null &
timeout 60 tcpdump -c 4 -n -i crtos0 icmp >linux 2>/dev/null &
await 'busybox ping -q -c 1 -W 5 10.9.0.2 >/dev/null && [ "$(cat realm linux | wc -l)" = 8 ]' 100 ||
	fail "tcpdump: $(cat realm linux)"
for file in realm linux; do
	grep -q '10.9.0.1 > 10.9.0.2: ICMP echo request' $file &&
		grep -q '10.9.0.2 > 10.9.0.1: ICMP echo reply' $file || fail "$file: $(cat $file)"
done
wait

# Most bytes behind a header.
for mtu in 67 9001; do
	ip link set crtos0 mtu $mtu 2>why && fail "an MTU of $mtu"
	grep -qi 'mtu' why || fail "an MTU of $mtu: $(cat why)"
done
# told_mtu: the MTU of the realm's end, by an ioctl of a socket that it has.
told_mtu() {
	here python3 -c 'import fcntl, socket as s, struct
with s.socket(s.AF_PACKET, s.SOCK_RAW, s.htons(3)) as a:
    a.bind(("crtos0", 0))
    request = fcntl.ioctl(a, 0x8921, struct.pack("16sI20x", b"crtos0", 0))
    print(struct.unpack("16xI20x", request)[0])'
}
for mtu in 1000 9000 1500; do
	ip link set crtos0 mtu $mtu || fail "no MTU of $mtu"
	busybox ping -q -c 2 -W 5 -s $((mtu - 28)) 10.9.0.2 >/dev/null || fail "an MTU of $mtu"
	[ "$(told_mtu)" = $mtu ] || fail "an MTU of $mtu: the realm has $(told_mtu)"
done

# A VLAN on Linux's end: the realm has its frames by packet sockets, with the tag.
ip link add link crtos0 name vlan5 type vlan id 5
ip address add 10.8.0.1/24 dev vlan5 && ip link set vlan5 up
cat >vlan.py <<'PY'
import socket
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as s:
    s.bind(("crtos0", 0))
    s.settimeout(20)
    own = s.getsockname()[4]
    tag = b"\x81\x00\x00\x05\x08\x06"
    body = b"\x00\x01\x08\x00\x06\x04\x00\x01" + own + bytes([10, 8, 0, 2]) + bytes(6)
    s.send(b"\xff" * 6 + own + tag + body + bytes([10, 8, 0, 1]))
    while True:
        frame = s.recv(2000)
        if frame[12:18] == tag and frame[24:26] == b"\x00\x02":
            break
    print("answered by", ".".join(map(str, frame[32:36])))
PY
here python3 vlan.py | grep -qx 'answered by 10.8.0.1' || fail 'VLAN'
ip link delete vlan5

# A part of a bridge: a station behind it.
ip netns add peer
ip link add name bridge0 type bridge && ip link set bridge0 up
ip link add near type veth peer name far netns peer
ip link set near master bridge0 up && ip link set crtos0 master bridge0
ip -n peer address add 10.9.0.3/24 dev far && ip -n peer link set far up
await 'ip netns exec peer busybox ping -q -c 1 -W 1 10.9.0.2 >/dev/null' 100 || fail 'bridge'
ip link delete near && ip link delete bridge0

# In another network namespace; without it, it is where it was.
ip link set crtos0 netns peer
[ ! -e /sys/class/net/crtos0 ] || fail 'it is not moved'
ip -n peer address add 10.9.0.1/24 dev crtos0 && ip -n peer link set crtos0 up
await 'ip netns exec peer busybox ping -q -c 1 -W 1 10.9.0.2 >/dev/null' 100 || fail 'namespace'
ip netns delete peer
await '[ -e /sys/class/net/crtos0 ]' 100 || fail 'it has gone with a namespace'
ip address add 10.9.0.1/24 dev crtos0
ip link set crtos0 up
await 'busybox ping -q -c 1 -W 1 10.9.0.2 >/dev/null' 100 || fail 'afterwards'

# While Linux's end is down, what the realm sends is lost, and nobody waits.
ip link set crtos0 down
here python3 -c 'import socket as s
with s.socket(s.AF_INET, s.SOCK_DGRAM) as a:
    for _ in range(1000):
        a.sendto(b"lost", ("10.9.0.1", 5000))' || fail 'a program waits while it is down'
ip link set crtos0 up
await 'busybox ping -q -c 1 -W 1 10.9.0.2 >/dev/null' 100 || fail 'up again'
ethtool -S crtos0
ethtool -S crtos0 | grep -q 'bad_frames: 0' || fail 'bad frames'

# The realm ends in the middle of it, and comes again.
for end in first second; do
	here iperf3 -4 -s -1 -B 10.9.0.2 >/dev/null 2>&1 &
	iperf3 -4 -c 10.9.0.2 -t 60 >/dev/null 2>&1 &
	client=$!
	busybox ping -q -i 0.01 -s 1400 10.9.0.2 >/dev/null 2>&1 &
	pinger=$!
	sleep 2
	crtos down --force || fail "$end"
	[ ! -e /sys/class/net/crtos0 ] || fail "$end: there afterwards"
	kill $client $pinger 2>/dev/null
	wait
	ethernet_up || exit 1
	busybox ping -q -c 2 -W 5 10.9.0.2 >/dev/null || fail "$end: ping"
done
crtos down || fail down

# A locked realm has it as well.
ethernet_up --locked || exit 1
busybox ping -q -c 2 -W 5 10.9.0.2 >/dev/null || fail 'locked: ping'
crtos down || fail 'locked: down'
complaints | grep -v 'AMD Zen1' | grep . && fail dmesg
exit $failed
