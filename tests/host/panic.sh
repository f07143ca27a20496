#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux panics; a program in the realm goes on counting on a debug port at its rate, another one
# goes on unmapping pages that Linux has, and a third one with the realm's devices: serial lines, a
# PCI function that interrupts it, CAN interfaces, and network interfaces.
# timeout: 600
set -u
. tests/host/common/rate.sh
dir=$(mktemp -d)
trap 'kill $vm 2>/dev/null; wait $vm 2>/dev/null; rm -rf "$dir"' EXIT
# Letters of the program that counts.
size() { tr -cd a-z <"$dir/port" | wc -c; }

mkdir "$dir/share"
./x vm --no-realm --uarts --can --devices --debugcon "$dir/port" --on-panic wait --console "$dir/console" \
	--share "$dir/share" --timeout 500 -- '
	modprobe -a kvaser_pci can_raw e1000e af_packet
	for name in can0 can1; do
		until ip link set $name type can bitrate 500000; do sleep 0.2; done
	done
	until [ -e /sys/class/net/eth1 ]; do sleep 0.2; done
	crtos up --cpus 3 --memory 256M --port 0xe9 --device ttyS1 --device ttyS2 \
		--device can0 --device can1 --device eth0 --device eth1 || exit 1
	edu=$(grep -l 0x11e8 /sys/bus/pci/devices/*/device | head -n 1)
	edu=${edu%/device}
	crtos device add "${edu##*/}" --no-reset || exit 1
	crtos run -- "$PROGRAMS/devices" /dev/ttyS1 /dev/ttyS2 \
		"/dev/$(ls "$edu/uio")" can0 can1 eth0 eth1 &
	crtos run -- "$PROGRAMS/counter" 10000 &
	crtos run -- "$PROGRAMS/unmapper" /tmp/file 4000 0xe9 &
	until [ -e /mnt/share/panic ]; do sleep 0.2; done
	echo c >/proc/sysrq-trigger' &
vm=$!

# Wait for the first letter, then see the rate before the panic.
while kill -0 $vm 2>/dev/null && ! [ -s "$dir/port" ]; do sleep 0.2; done
[ -s "$dir/port" ] || { echo "the program never counted"; exit 1; }
sleep 1
rate || { echo "$letters letters in 5 s before the panic"; exit 1; }
before=$letters
# Linux has had all pages.
while kill -0 $vm 2>/dev/null && ! grep -q U "$dir/port"; do sleep 0.2; done
touch "$dir/share/panic"
while kill -0 $vm 2>/dev/null && ! grep -q 'Kernel panic' "$dir/console"; do sleep 0.2; done
grep -q 'Kernel panic' "$dir/console" || { echo "Linux did not panic"; exit 1; }
of() { tr -cd "$1" <"$dir/port" | wc -c; }
sleep 10
bytes=$(of S) interrupts=$(of I) frames=$(of F) packets=$(of N)
rate; status=$?
echo "letters in 5 s: $before before the panic, $letters from ten seconds after it"
echo "$(of U) pages unmapped"
bytes=$(($(of S) - bytes)) interrupts=$(($(of I) - interrupts))
frames=$(($(of F) - frames)) packets=$(($(of N) - packets))
echo "devices: $bytes bytes, $interrupts interrupts, $frames frames of CAN, $packets of the network," \
	"$(of X) failures"
if ((bytes < 100 || interrupts < 100 || frames < 100 || packets < 100 || $(of X) != 0)); then
	echo "the realm's devices do not go on"
	status=1
fi
while kill -0 $vm 2>/dev/null && ! grep -q E "$dir/port"; do sleep 0.2; done
if ! grep -q E "$dir/port"; then
	echo "the other program unmapped $(of U) pages and hangs"
	status=1
fi
exit $status
