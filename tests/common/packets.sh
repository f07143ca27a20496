# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Packets of IPv4 that programs make up.

# packets_module: makes packets.py, for programs in the working folder to import.
packets_module() {
	cat >packets.py <<'PY'
import struct

def checksum(data):
    data += b'\0' * (len(data) % 2)
    total = sum(struct.unpack('!%dH' % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff

def with_checksum(data, at, before=b''):
    """The data, with the checksum of what is before and of themselves at a position."""
    return data[:at] + struct.pack('!H', checksum(before + data)) + data[at + 2:]

def packet(protocol, payload, source, destination, number=1, fragment=0x4000):
    head = struct.pack('!BBHHHBBH4s4s', 0x45, 0, 20 + len(payload), number, fragment, 64, protocol,
                       0, source, destination)
    return with_checksum(head, 10) + payload

def segment(source, destination, head, rest=b''):
    """A segment of TCP, of whose head the checksum is 0."""
    pseudo = source + destination + struct.pack('!HH', 6, len(head + rest))
    return with_checksum(head + rest, 16, pseudo)
PY
}
