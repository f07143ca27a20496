#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A UART that the realm has is given back: at the end, when `crtos up` fails, and when it was
# killed. Linux cannot touch it meanwhile, and what Linux uses is not taken.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# uarts: isa
# tier: full
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
up() { crtos up --cpus 3 --memory 256M --device "$@"; }
# Whether Linux has the UART, and bytes pass it.
works() {
	stty -F /dev/ttyS1 raw -echo 115200 && stty -F /dev/ttyS2 raw -echo 115200 || return
	# What the realm has sent, and nobody read.
	timeout 0.5 cat </dev/ttyS2 >/dev/null
	timeout 10 head -c 5 </dev/ttyS2 >got &
	sleep 0.5
	printf works >/dev/ttyS1
	wait $!
	[ "$(cat got)" = works ]
}
works || fail 'before'

up ttyS0 2>why && fail 'the console is taken'
grep -q console why || fail "$(cat why)"
up ttyS3 2>why && fail 'what is no UART is taken'
grep -q 'no UART' why || fail "$(cat why)"
cat </dev/ttyS1 >/dev/null &
user=$!
up ttyS1 2>why && fail 'what a program has open is taken'
grep -q "$user cat" why || fail "$(cat why)"
kill $user; wait $user 2>/dev/null

up ttyS1 --dry-run | grep -q 'would take ttyS1' || fail 'rehearsal'
up ttyS1 || exit 1
stty -F /dev/ttyS1 2>why && fail 'Linux uses it'
grep -q 'Input/output error' why || fail "$(cat why)"
crtos run -- sh -c 'stty raw -echo 115200; printf realm' </dev/ttyS1 >/dev/ttyS1 || fail 'inherited'
grep -q '02f8-02ff : crtos' /proc/ioports || fail 'a driver of Linux may have its ports'
up ttyS1 2>why && fail 'it is up twice'
grep -q 'already up' why || fail "$(cat why)"
# A program that has it open in the realm ends with that.
crtos run -- cat </dev/ttyS1 >/dev/null &
await 'crtos ps | grep -q cat'
crtos down --force || fail 'down'
wait
works || fail "after down: $(cat got)"

# Linux's driver looks for it meanwhile.
place=$(readlink -f /sys/class/tty/ttyS1)
uart=$(for one in /sys/bus/pnp/devices/*; do
	[[ $place/ = $(readlink -f "$one")/* ]] && basename "$one"
done)
up ttyS1 || exit 1
dmesg --clear
echo "$uart" >/sys/bus/pnp/drivers/serial/unbind || fail "ttyS1 is at $place, device '$uart'"
echo "$uart" >/sys/bus/pnp/drivers/serial/bind 2>/dev/null
complaints | grep . && fail 'Linux finds what it may not reach'
crtos run -- sh -c 'stty raw -echo 115200; printf realm' </dev/ttyS1 >/dev/ttyS1
crtos down || fail 'down with another driver'
echo "$uart" >/sys/bus/pnp/drivers/serial/unbind 2>/dev/null
echo "$uart" >/sys/bus/pnp/drivers/serial/bind || fail 'its driver does not take it'
works || fail "bound anew: $(cat got)"

# It fails behind the point where the UART is taken.
up ttyS1 --device 00:00.0 2>why && fail "the machine's bridge is taken"
grep -q 'ttyS1: Uart' why || fail "it fails before: $(cat why)"
works || fail "after a failure: $(cat why)"

# It is killed when it has taken the UART.
for delay in 0.1 0.3 0.6 1; do
	crtos up --cpus 3 --memory 256M --device ttyS1 &
	up=$!
	sleep $delay
	kill -9 $up 2>/dev/null
	wait $up 2>/dev/null
	crtos down 2>/dev/null
	works || fail "after a kill in $delay s"
done
up ttyS1 && crtos down || fail 'once more'
works || fail 'at the end'
exit $failed
