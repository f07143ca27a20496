#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A station makes up what none sends: packets that come from everybody, or from the realm itself,
# connections with all stations at once, packets for other stations while somebody listens to
# everything, and questions for groups without end. The realm sends nothing because of them, or
# little.
# kernels: 6.12
# realm: no
# shared: yes
# packages: python3-minimal
# uses: ethernet packets
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
cat >member.py <<'PY'
import socket, struct, time
# It is in 20 groups, and listens to everything.
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.bind(('10.9.0.2', 7000))
    for group in range(20):
        s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                     bytes([239, 1, 1, group]) + socket.inet_aton('10.9.0.2'))
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    wire.bind(('crtos0', 3))
    index = socket.if_nametoindex('crtos0')
    wire.setsockopt(263, 1, struct.pack('iHH8s', index, 1, 0, b''))
    print('listens', flush=True)
    time.sleep(1000)
PY
packets_module
cat >forge.py <<'PY'
import packets, socket, struct, sys, time
station = bytes.fromhex(sys.argv[1].replace(':', ''))
other, everybody = b'\2\0\0\0\0\x99', b'\xff' * 6
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
wire.bind(('crtos0', 3))
wire.settimeout(30)
here, there = socket.inet_aton('10.9.0.1'), socket.inet_aton('10.9.0.2')
own = wire.getsockname()[4]

def packet(protocol, payload, source=here, to=station, destination=there):
    return to + own + b'\x08\0' + packets.packet(protocol, payload, source, destination)

def echo(number):
    return packets.with_checksum(struct.pack('!BBHHH', 8, 0, 0, number, 1), 2)

def opening(port):
    head = struct.pack('!HHIIBBHHH', 999, port, 1, 0, 0x50, 2, 1000, 0, 0)
    return packets.segment(here, there, head)

def answers(frames):
    """What the realm sends until it has answered what follows these frames."""
    for frame in frames:
        wire.send(frame)
    wire.send(packet(1, echo(0xffff)))
    while True:
        frame = wire.recv(2000)
        if frame[6:12] == own or frame[12:14] != b'\x08\0':
            continue
        if frame[23] == 1 and frame[34] == 0 and frame[38:40] == b'\xff\xff':
            return
        yield frame

failed = False
def expect(what, count, frames):
    global failed
    came = list(answers(frames))
    if len(came) != count:
        print(f'FAILED {what}: {len(came)} frames came', *(frame.hex() for frame in came[:3]))
        failed = True

expect('what is asked for', 2, [packet(1, echo(1)), packet(6, opening(9))])
expect('an echo for all stations', 0, [packet(1, echo(2), socket.inet_aton('10.9.0.255'))])
expect('a datagram of all stations', 0, [packet(17, struct.pack('!HHHH', 5, 9, 8, 0),
                                                socket.inet_aton('10.9.0.255'))])
expect('an echo for itself', 0, [packet(1, echo(3), there)])
expect('a connection with all stations', 0, [packet(6, opening(9), to=everybody)])
expect('an echo of another station', 0, [packet(1, echo(4), to=other)])
expect('a connection of another station', 0, [packet(6, opening(9), to=other)])

question = packet(2, struct.pack('!BBHI', 0x11, 100, 0xee9b, 0), to=b'\1\0\x5e\0\0\1',
                  destination=socket.inet_aton('224.0.0.1'))
begin = time.monotonic()
wire.setblocking(True)
reports = sum(frame[23] == 2 for frame in answers([question] * 400))
took = time.monotonic() - begin
print(f'{reports} reports in {took:.2f} s')
if not 20 <= reports <= 64 + took / 0.01 + 5:
    print('FAILED the questions are answered')
    failed = True
sys.exit(failed)
PY
modprobe crtos && dmesg --clear || exit 1
ethernet_up || exit 1
busybox ping -q -c 1 -W 20 10.9.0.2 >/dev/null || fail ping
station=$(ip neigh show 10.9.0.2 dev crtos0 | sed -n 's/.*lladdr \([^ ]*\).*/\1/p')
crtos run -- python3 member.py >member &
await 'grep -q listens member' || fail 'nobody listens'
sleep 1
timeout 200 python3 forge.py "$station" || fail 'packets that are made up'
programs_end
wait
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
