#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Jumbo frames by the virtual Ethernet: UDP, TCP and packet sockets of both ends, while short frames
# go as well. What is longer than the MTU comes in fragments. A smaller MTU breaks no connection.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# packages: tcpdump,ethtool,iperf3,python3-minimal
# uses: ethernet
# tier: full
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe -a crtos af_packet && dmesg --clear || exit 1
ethernet_up || exit 1
ip link set crtos0 mtu 9000 || exit 1

cat >talk.py <<'PY'
# KIND answer|ask OWN OTHER: messages of these lengths, which come back.
import socket as s
import sys

LENGTHS = [1, 1472, 1473, 2000, 2034, 2035, 4096, 8972, 8973, 20000, 65507]


def data(length):
    return bytes(at * 7 % 251 for at in range(length))


def until_answered(a, send):
    # The first ones may come before there is somebody.
    a.settimeout(2)
    for _ in range(50):
        send()
        try:
            return a.recv(70000)
        except s.timeout:
            pass


def udp(what, own, other):
    with s.socket(s.AF_INET, s.SOCK_DGRAM) as a:
        a.settimeout(100)
        a.bind((own, 5000))
        while what == "answer":
            got, who = a.recvfrom(70000)
            if got == b"end":
                return
            assert got == data(len(got)), len(got)
            a.sendto(got, who)
        to = (other, 5000)
        for length in 3 * LENGTHS:
            got = until_answered(a, lambda: a.sendto(data(length), to))
            assert got == data(length), (length, len(got))
        a.sendto(b"end", to)
        print("all came")


def packet(what):
    with s.socket(s.AF_PACKET, s.SOCK_RAW, s.htons(0x88B5)) as a:
        a.bind(("crtos0", 0))
        a.settimeout(100)
        head = b"\xff" * 6 + a.getsockname()[4]
        kind = b"\x88\xb5"
        while what == "answer":
            got = a.recv(10000)
            if got[14:17] == b"end":
                return
            a.send(head + kind + b"%5d" % len(got) + got[14:][:8995])
        for length in (46, 1500, 9000):
            got = until_answered(a, lambda: a.send(head + kind + data(length)))
            assert got[14:] == b"%5d" % (14 + length) + data(length)[:8995], (length, len(got))
        a.send(head + kind + b"end" + bytes(60))
        # A tag of a VLAN goes beside; one byte more does not.
        tag = b"\x81\x00\x00\x05"
        a.send(head + tag + kind + data(9000))
        for wrong in (kind + data(9001), tag + kind + data(9001)):
            try:
                a.send(head + wrong)
                print("sent", len(wrong))
            except OSError as error:
                assert error.errno == 90, error
        print("all came")


globals()[sys.argv[1]](*sys.argv[2:])
PY

# UDP, both ways.
here python3 talk.py udp answer 10.9.0.2 - &
timeout 120 python3 talk.py udp ask 10.9.0.1 10.9.0.2 | grep -qx 'all came' || fail 'UDP, Linux asks'
wait
timeout 120 python3 talk.py udp answer 10.9.0.1 - &
here python3 talk.py udp ask 10.9.0.2 10.9.0.1 | grep -qx 'all came' || fail 'UDP, the realm asks'
wait
# The realm to itself.
here python3 -c 'import socket as s
with s.socket(s.AF_INET, s.SOCK_DGRAM) as a:
    a.settimeout(20)
    a.bind(("10.9.0.2", 5001))
    for length in (8972, 1, 30000):
        a.sendto(length * b"x", ("10.9.0.2", 5001))
        assert a.recv(70000) == length * b"x"' || fail 'UDP, the realm to itself'

# Packet sockets, both ways.
timeout 120 python3 talk.py packet answer &
here python3 talk.py packet ask | grep -qx 'all came' || fail 'packets of the realm'
wait
here python3 talk.py packet answer &
timeout 120 python3 talk.py packet ask | grep -qx 'all came' || fail 'packets of Linux'
wait

# TCP: segments that fill a frame, both ways, with either as the server.
timeout 300 tcpdump -n -s 100 -i crtos0 -w frames tcp 2>/dev/null &
dump=$!
await '[ -s frames ]'
for reverse in '' -R; do
	here iperf3 -4 -s -1 -B 10.9.0.2 >/dev/null &
	await "timeout 60 iperf3 -4 -c 10.9.0.2 -n 8M $reverse >said" 50
	grep -e sender -e receiver said || fail "the realm serves $reverse"
	wait $!
	timeout 120 iperf3 -4 -s -1 -B 10.9.0.1 >/dev/null &
	await 'ss -Hltn | grep -q :5201'
	here iperf3 -4 -c 10.9.0.1 -n 8M ${reverse:+-R} | grep -e sender -e receiver ||
		fail "Linux serves $reverse"
	wait $!
done
kill $dump
wait
for way in 'src 10.9.0.1' 'src 10.9.0.2'; do
	tcpdump -n -r frames "$way and greater 9000" 2>/dev/null | head -n 1 | grep . ||
		fail "no long segment, $way"
done

# What is under way when the MTU changes comes nevertheless.
here iperf3 -4 -s -1 -B 10.9.0.2 >/dev/null &
await 'crtos ps | grep -q iperf3'
sleep 2
timeout 100 iperf3 -4 -c 10.9.0.2 -n 16M >said &
client=$!
for mtu in 1500 9000 600 9000 1500 9000; do
	sleep 0.3
	ip link set crtos0 mtu $mtu || fail "mtu $mtu"
done
wait $client || fail "a change of the MTU: $(cat said)"
programs_end
wait
ethtool -S crtos0
ethtool -S crtos0 | grep -q 'bad_frames: 0' || fail 'bad frames'
crtos log | grep -i 'died\|panic' && fail 'something died'
crtos down || fail down
complaints | grep -v 'AMD Zen1' | grep . && fail dmesg
exit $failed
