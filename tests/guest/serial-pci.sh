#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A UART on a PCI card, which interrupts by a level, is to programs of the realm what it is under
# Linux: tests/abi/serial.c runs under Linux, and then in the realm. Linux gets it back.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# uarts: pci
# uses: alike
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
fail() { echo "FAILED $*"; }
program=/usr/lib/crtos-tests/abi/serial
place=$(readlink -f /sys/class/tty/ttyS1)
card=$(grep -l 0x070002 /sys/bus/pci/devices/*/class | head -n 1 | cut -d/ -f6)
[[ $place = */$card/* ]] || { fail "ttyS1 is at $place, the card at $card"; exit 1; }
natively 300 $program
crtos up --cpus 3 --memory 256M --device ttyS1 || exit 1
dmesg --clear
crtos log | grep -q 'ttyS1: .*, interrupts' || { fail "no line: $(crtos log | grep ttyS1)"; exit 1; }
alike 400 $program || exit 1
crtos down || exit 1
exec 9<>/dev/ttyS2
stty -F /dev/ttyS2 raw -echo 115200
stty -F /dev/ttyS1 raw -echo 115200
printf 'works' >/dev/ttyS1
[ "$(timeout 20 head -c 5 <&9)" = works ] || { fail 'Linux does not get it back'; exit 1; }
complaints | grep . && { fail dmesg; exit 1; }
exit 0
