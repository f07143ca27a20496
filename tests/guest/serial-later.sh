#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A UART comes to the realm while that runs, and goes: Debian's programs use it in between, and
# Linux before and afterwards, with the settings that it had. What somebody uses is refused by
# either side, with who does. A command that is killed leaves what the next one mends.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# uarts: isa
# packages: picocom,python3-serial,setserial
# uses: devices
# full: ROUNDS=100
# tier: full
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
ttys1='[["ttyS1","uart","realtime"]]'
# passes WHEN FROM: bytes pass from ttyS1 to ttyS2, sent by a command.
passes() {
	local when=$1
	shift
	stty -F /dev/ttyS2 raw -echo 115200
	timeout 0.5 cat </dev/ttyS2 >/dev/null
	timeout 60 head -c 5 </dev/ttyS2 >got &
	sleep 0.5
	"$@" || fail "$when: status $?"
	wait $!
	[ "$(cat got)" = bytes ] || fail "$when: '$(cat got)' comes"
}
by_linux() { passes "$1" sh -c 'stty -F /dev/ttyS1 raw -echo 19200; printf bytes >/dev/ttyS1'; }
by_realm() {
	passes "$1" crtos run -- sh -c 'stty -F /dev/ttyS1 raw -echo 19200; printf bytes >/dev/ttyS1'
}
# What Linux knows of the port.
told() { setserial -a /dev/ttyS1; stty -F /dev/ttyS1 -a; }

stty -F /dev/ttyS1 raw -echo 19200
setserial /dev/ttyS1 low_latency closing_wait 1234
before=$(told)
refused 'crtos is not up' crtos device add ttyS1
refused 'asks for its I/O ports' crtos up --cpus 3 --memory 256M --port 0x2f8:exclusive \
	--device ttyS1
crtos up --cpus 3 --memory 256M || exit 1
dmesg --clear

# What somebody uses.
refused console crtos device add ttyS0
refused 'no UART' crtos device add ttyS3
refused 'no serial port' crtos device add ttyS77
cat </dev/ttyS1 >/dev/null &
user=$!
await '[ "$(cat /proc/$user/comm)" = cat ]'
refused "$user cat" crtos device add ttyS1
kill $user; wait $user 2>/dev/null
# A program of the realm as well, while the port is Linux's.
crtos run -- cat /dev/ttyS1 &
program=$!
await 'crtos ps | grep -q cat'
await 'ls -l /proc/*/fd 2>/dev/null | grep -q ttyS1'
refused "$program" crtos device add ttyS1
kill $program; wait $program 2>/dev/null
await '! crtos ps | grep -q cat'
refused 'no cell has it\|serial port' crtos device remove ttyS1
[ "$(listed)" = '[]' ] || fail "list: $(listed)"
crtos cell create other --cpus 2 --memory 4M >/dev/null || fail cell
refused 'the real-time realm alone gets it' crtos device add ttyS1 --cell other
crtos cell destroy other || fail destroy

# It comes.
crtos device add ttyS1 || fail 'not given'
crtos log | grep -q 'ttyS1: .*, interrupts$' || fail "log: $(crtos log | grep ttyS1)"
crtos device list
[ "$(listed)" = "$ttys1" ] || fail "list: $(listed)"
refused 'has it already' crtos device add ttyS1
grep -q '02f8-02ff : crtos' /proc/ioports || fail 'a driver of Linux may have its ports'
stty -F /dev/ttyS1 2>why && fail 'Linux uses it'
by_realm 'when it has come'
(sleep 2; printf 'hello\n' >/dev/ttyS2) &
[ "$(timeout 60 crtos run -- head -n 1 /dev/ttyS1)" = hello ] || fail 'nothing comes'
await 'crtos stats | grep -q "^ttyS1  *[1-9]"' 50 || fail "stats: $(crtos stats --json)"
timeout 60 crtos run -- picocom -q -b 115200 -x 500 -t typed /dev/ttyS1 </dev/null ||
	fail "picocom: status $?"
crtos run -- python3 - <<'PY' || fail "python3-serial: status $?"
import serial, threading
with serial.Serial('/dev/ttyS1', 57600, timeout=20, exclusive=True) as line:
    line.write(b'something')
    line.flush()
    assert line.get_settings()['baudrate'] == 57600
PY

# Who has it open keeps it.
crtos run -- sh -c 'exec 3<>/dev/ttyS1; echo open; exec sleep 100' >said &
program=$!
await 'grep -q open said'
refused "open: .*sleep" crtos device remove ttyS1
[ "$(listed)" = "$ttys1" ] || fail "list: $(listed)"
kill $program; wait $program 2>/dev/null
await 'crtos device remove ttyS1 2>why' 100 || fail "not taken back: $(cat why)"
[ "$(listed)" = '[]' ] || fail "list: $(listed)"
[ "$(told)" = "$before" ] || { fail 'it is not as before'; diff <(echo "$before") <(told); }
grep -q crtos /proc/ioports && fail "ports: $(grep crtos /proc/ioports)"
[ -z "$(cat /sys/kernel/irq/3/actions)" ] || fail "interrupt: $(cat /sys/kernel/irq/3/actions)"
by_linux 'when it is back'
# A program of the realm has Linux's then.
by_realm 'of Linux, in the realm'
refused 'serial port' crtos device remove ttyS1

# Killed commands, and programs.
is_back() { [ "$(told)" = "$before" ] || fail "$1: $(told)"; }
survives_kills "${ROUNDS:-8}" 100 ttyS1 "$ttys1" 'serial port' cat /dev/ttyS1
by_linux 'after kills'

# It goes with the realm, also with a program that has it open, and after a kill.
crtos device add ttyS1 || fail 'not given again'
crtos run -- cat /dev/ttyS1 &
program=$!
await 'crtos ps | grep -q cat'
crtos down --force || fail down
wait $program
[ "$(told)" = "$before" ] || { fail 'it is not as before, at down'; diff <(echo "$before") <(told); }
by_linux 'after down'
crtos up --cpus 3 --memory 256M || exit 1
crtos device add ttyS1 &
sleep 0.03
kill -KILL $! 2>/dev/null; wait $! 2>/dev/null
crtos down || fail down
by_linux 'after a kill and down'

# It comes with the realm, and goes before that.
crtos up --cpus 3 --memory 256M --device ttyS1 || exit 1
[ "$(listed)" = "$ttys1" ] || fail "list: $(listed)"
crtos device remove ttyS1 || fail 'not taken from the start'
by_linux 'from a realm that had it from the start'
crtos device add ttyS1 --no-interrupt || fail 'not given without its interrupt'
crtos log | tail -n 5 | grep -q 'ttyS1: .* looked at by a timer' || fail "$(crtos log | tail -n 5)"
by_realm 'by a timer'
crtos down || fail down

# A locked realm keeps what it has.
crtos up --cpus 3 --memory 256M --locked || exit 1
refused locked crtos device add ttyS1
by_linux 'beside a locked realm'
crtos down || fail down
stty -F /dev/ttyS1 sane 115200
setserial /dev/ttyS1 ^low_latency closing_wait 3000
complaints | grep -v 'AMD Zen1' | grep . && fail dmesg
exit $failed
