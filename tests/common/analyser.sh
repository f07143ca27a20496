# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash

# analyser LINE LOG: is a logic analyser at a serial line (the protocol SUMP), in place of the shell
# that calls it. Its eight channels are the digits of a counter. It notes what it is asked for.
analyser() {
	exec python3 -c "
import os, sys, termios, tty
line = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
tty.setraw(line)
settings = termios.tcgetattr(line)
settings[4] = settings[5] = termios.B115200
settings[2] |= termios.CLOCAL
termios.tcsetattr(line, termios.TCSANOW, settings)
log = open(sys.argv[2], 'w')
def read(count):
    data = b''
    while len(data) < count:
        data += os.read(line, count - len(data))
    return data
def write(data):
    while data:
        data = data[os.write(line, data):]
samples = 0
while True:
    command = read(1)[0]
    argument = read(4) if command >= 0x80 else b''
    print('%02x' % command, argument.hex(), file=log, flush=True)
    if command == 0x02:
        write(b'1ALS')
    elif command == 0x04:
        # Its name, 8 channels, 24 KiB of memory, 200 MHz, version 2 of the protocol.
        write(b'\x01Analyser\x00\x40\x08\x21\0\0\x60\0\x23\x0b\xeb\xc2\0\x41\x02\0')
    elif command == 0x81:
        samples = 4 * (1 + int.from_bytes(argument[:2], 'little'))
    elif command == 0x84:
        samples = 4 * (1 + int.from_bytes(argument, 'little'))
    elif command == 0x01:
        # The last one comes first.
        write(bytes(number & 255 for number in reversed(range(samples))))
" "$@"
}
