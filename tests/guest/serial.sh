#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's programs for serial lines do in the realm, on a UART that the realm has, what they do
# under Linux. The other end of the wire is a UART of Linux.
# kernels: 6.1
# realm: no
# shared: yes
# uarts: isa
# packages: mbpoll,picocom,python3-serial,setserial,socat
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
line=/dev/ttyS1 other=/dev/ttyS2
run=(timeout 20)

# Sends a text from the other end a while after the program has begun.
later() { (sleep 1.5; printf "$1" >$other) & }
# Forgets what has come at the other end.
forget() { timeout 0.5 cat <$other >/dev/null; }
# What comes at the other end within some seconds, as long as the program takes.
hear() { forget; timeout "${2:-4}" head -c "$1" <$other >heard & }
# What the programs print, with what the other end heard.
told() { wait; echo "status $1"; [ ! -f heard ] || { printf 'heard: '; od -An -c heard; rm heard; }; }

# A slave of Modbus RTU at the other end: it answers function 3 with three registers.
slave() {
	forget
	timeout 20 python3 - <<'PY' &
import serial, struct
def crc(data):
    value = 0xffff
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xa001 if value & 1 else 0)
    return struct.pack('<H', value)
line = serial.Serial('/dev/ttyS2', 19200, parity='E', timeout=15)
asked = line.read(8)
if crc(asked[:6]) == asked[6:] and asked[:2] == b'\x01\x03':
    answer = b'\x01\x03\x06' + struct.pack('>3H', 17, 4711, 65535)
    line.write(answer + crc(answer))
    line.flush()
PY
	sleep 1
}

programs() {
	# Whatever comes there is kept from now on.
	exec 9<>$other
	stty -F $other sane raw -echo 115200
	echo '== stty'
	"${run[@]}" stty -F $line sane; "${run[@]}" stty -F $line -a
	"${run[@]}" stty -F $line raw -echo 57600 cs7 parenb -parodd cstopb ixon crtscts min 3 time 5
	"${run[@]}" stty -F $line -a; "${run[@]}" stty -F $line -g; "${run[@]}" stty -F $line speed
	"${run[@]}" stty -F $line 460800; told $?
	"${run[@]}" stty <$line; told $?
	"${run[@]}" stty -F $line sane raw -echo 115200; told $?

	echo '== cat, dd, echo'
	hear 6; "${run[@]}" sh -c "echo hello >$line"; told $?
	later 'to you\n'; "${run[@]}" head -n 1 $line; told $?
	later 'abc\ndef\n'
	"${run[@]}" sh -c 'stty cooked -echo; read -r a; read -r b; echo "$b $a"' <$line; told $?
	"${run[@]}" stty -F $line sane raw -echo 115200
	hear 4000 8; "${run[@]}" dd if=/dev/zero of=$line bs=1000 count=4 status=none; told $?

	echo '== setserial'
	"${run[@]}" setserial -g $line; told $?
	"${run[@]}" setserial $line low_latency; told $?
	"${run[@]}" setserial $line ^low_latency; told $?

	echo '== picocom'
	hear 5; "${run[@]}" picocom -q -b 115200 -x 1000 -t 'typed' $line </dev/null; told $?
	later 'shown\r\n'; "${run[@]}" picocom -q -b 9600 --imap lfcrlf -x 3000 $line </dev/null; told $?
	"${run[@]}" picocom -b 115200 -f h -p e -d 7 -p 2 -X $line </dev/null; told $?
	"${run[@]}" sh -c "exec 3<>$line; flock -n 3; flock -n $line true; echo \$?"; told $?

	echo '== socat'
	stty -F $other sane raw -echo 115200
	hear 5; printf 'piped' | "${run[@]}" socat -u - $line,b115200,raw,echo=0; told $?
	later 'line\n'
	"${run[@]}" socat -u $line,b115200,rawer,crnl SYSTEM:"head -n 1",nofork; told $?

	echo '== python3-serial'
	forget
	(timeout 20 head -c 11 <$other | tr a-z A-Z >$other) &
	"${run[@]}" python3 - <<'PY'
import serial, serial.rs485, time
with serial.Serial('/dev/ttyS1', 115200, timeout=5, exclusive=True) as line:
    print(line.name, line.baudrate, line.in_waiting, line.cts, line.dsr, line.cd, line.ri)
    line.write(b'echoed back')
    line.flush()
    print(line.read(11))
    line.timeout = 0.2
    start = time.monotonic()
    print(line.read(1), 0.15 < time.monotonic() - start < 4)
    line.rts = line.dtr = False
    line.rts = line.dtr = True
    line.send_break(0.1)
    line.break_condition = False
    line.reset_input_buffer(); line.reset_output_buffer()
    for speed in 300, 9600, 7200, 31250, 115200:
        line.baudrate = speed
    line.parity, line.bytesize, line.stopbits = 'O', 7, 2
    line.xonxoff = line.rtscts = True
    line.rtscts = False
    line.inter_byte_timeout = 0.1
    print(line.get_settings())
    try:
        line.rs485_mode = serial.rs485.RS485Settings()
    except (ValueError, AttributeError, OSError) as error:
        print(type(error).__name__)
PY
	told $?

	echo '== mbpoll'
	slave; "${run[@]}" mbpoll -m rtu -a 1 -b 19200 -P even -t 4 -r 1 -c 3 -1 -o 9 $line |
		grep -av Copyright; told "${PIPESTATUS[0]}"
	"${run[@]}" mbpoll -m rtu -a 2 -b 19200 -t 4 -r 1 -c 1 -1 -o 0.5 $line 2>&1 |
		grep -av Copyright; told "${PIPESTATUS[0]}"
}

programs >linux.out 2>linux.err
crtos up --cpus 3 --memory 256M --device ttyS1 || exit 1
run=(timeout 20 crtos run --)
programs >realm.out 2>realm.err
cat realm.out
cmp -s linux.out realm.out || { echo 'FAILED: Linux and the realm differ'; diff linux.out realm.out; failed=1; }
diff linux.err realm.err >/dev/null || { echo 'FAILED: complaints differ'; diff linux.err realm.err; failed=1; }
crtos log | tail -n 3
crtos down || exit 1
exit $failed
