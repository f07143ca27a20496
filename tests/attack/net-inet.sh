#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A peer makes up packets, asks for thousands of connections that it does not go on with, and sends
# fragments without end, while a program in the realm keeps its period of 1 ms. A server of the
# realm goes on afterwards. Programs are killed with many sockets, again and again: all of them are
# given back.
# kernels: 6.12
# icount: yes
# turns: short
# realm: no
# devices: yes
# packages: python3-minimal
# uses: net peer net-inet packets
# timeout: 900
# tier: full
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
program=/usr/lib/crtos-tests/abi/inet
packets_module
cat >hostile.py <<'PY'
import packets, random, socket, struct, sys
# WAY COUNT STATION: so many packets of that kind, for the station with that address.
way, count, station = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3].replace(':', ''))
random.seed(way)
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(('far', 0x800))
near = socket.inet_aton('10.9.0.1')

def packet(protocol, payload, source, *options):
    payload = packets.packet(protocol, payload, source, near, *options)
    return station + b'\2\0\0\0\0\x77' + b'\x08\0' + payload

def stranger():
    return bytes([10, 9, 0, random.randrange(3, 250)])

def segment(source, flags, rest=b''):
    head = struct.pack('!HHIIBBHHH', random.randrange(1, 65536), 8000, random.randrange(1 << 32),
                       random.randrange(1 << 32), 0x50, flags, 1000, 0, 0)
    return packets.segment(source, near, head, rest)

for at in range(count):
    source = stranger()
    if way == 'connections':
        frame = packet(6, segment(source, 2), source)
    elif way == 'segments':
        frame = packet(6, segment(source, random.randrange(256), random.randbytes(at % 50)), source)
    elif way == 'fragments':
        frame = packet(17, random.randbytes(8 * random.randrange(1, 180)), source,
                       random.randrange(50), random.randrange(0x4000))
    elif way == 'garbage':
        frame = bytearray(packet(random.choice([1, 2, 6, 17]), random.randbytes(at % 200), source))
        frame[random.randrange(12, len(frame))] ^= 1 << random.randrange(8)
    else:
        kind = struct.pack('!HHBBH', 1, 0x800, 6, 4, random.randrange(3))
        frame = (b'\xff' * 6 + b'\2\0\0\0\0\x77' + b'\x08\x06' + kind + random.randbytes(6) + source
                 + random.randbytes(6) + near)
    wire.send(frame)
PY
in_memory crtos "$program" "$PROGRAMS/periodic" python3 ip gojq busybox
wire && peer || exit 1
station=$(cat /sys/class/net/near/address)
answering "$program" || exit 1
server=$!
crtos up --cpus 3 --memory 256M --device near || exit 1
crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
crtos run -- bash -c "exec -a serves $program 8000" >served &
await 'grep -q serves served'
cat >ask.py <<'PY'
import socket, sys
with socket.create_connection(('10.9.0.1', 8000), timeout=60) as s:
    s.sendall(b'question')
    sys.exit(s.recv(100) != b'question')
PY
over_there python3 ask.py || fail 'there is no server'
for way in connections segments fragments garbage stations; do
	hostile() { over_there python3 hostile.py $way 3000 "$station"; }
	keeps_period 6000 hostile || fail "$way take the period away"
	over_there python3 ask.py || fail "the server is gone after $way"
done

# Killed with everything.
for round in {1..8}; do
	crtos run -- bash -c "exec -a holds $program" >held &
	await 'grep -q holds held' 600 || { fail "sockets are missing, round $round"; cat held; break; }
	kill -9 $!
	wait $!
done
timeout 60 crtos run -- $program a_connection connections_that_come datagrams_of_any_length ||
	fail 'the realm does not go on'
kill $server
crtos down --force || fail down
exit $failed
