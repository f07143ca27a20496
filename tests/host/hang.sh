#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux hangs: all of its CPUs spin with interrupts off. A program in a locked realm keeps its
# period of 1 ms, in virtual time. It tells on the debug port how it went.
# full: KERNELS=both,SECONDS_OF_PERIODS=3
# timeout: 900
set -u
dir=$(mktemp -d)
trap 'kill $vm 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
# With all four CPUs at work, 5 µs of the realm's take 20.
latest=20000
seconds=${SECONDS_OF_PERIODS:-2}
hangs_on() {
	local dots count least mean most
	: >"$dir/port"
	./x vm --kernel "$1" --no-realm --icount --short-turns --debugcon "$dir/port" \
		--timeout 400 -- '
		insmod /usr/lib/crtos-tests/attack/$(uname -r)/attack.ko
		crtos up --cpus 3 --memory 256M --port 0xe9 --locked || exit 1
		crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null
		chrt -f 80 crtos run -- "$PROGRAMS/periodic" 1000 '$seconds' port &
		until crtos ps | grep -qw $!; do sleep 0.1; done
		echo hang >/sys/kernel/debug/attack' </dev/null &
	vm=$!
	# Dots, an H of each CPU of Linux, dots again, and the figures, which end the line.
	until [ "$(wc -l <"$dir/port")" = 1 ]; do
		kill -0 $vm 2>/dev/null || { echo 'the program does not come to its end'; return 1; }
		sleep 0.2
	done
	[[ $(cat "$dir/port") =~ ^\.*H\.*H\.*H(\.*)([0-9 ]+)$ ]] || { cat "$dir/port"; return 1; }
	dots=${#BASH_REMATCH[1]}
	read -r count least mean most <<<"${BASH_REMATCH[2]}"
	echo "$1: $((dots * 100)) wake-ups or more since Linux hangs, of $count in all," \
		"$least to $most ns late, $mean in the mean"
	[ $dots -ge $((10 * seconds - 10)) ] && [ "$count" = $((1000 * seconds)) ] && [ "$most" -le $latest ]
}

kernels=(6.12)
[ -z "${KERNELS:-}" ] || kernels=(6.1 6.12)
for kernel in "${kernels[@]}"; do
	hangs_on $kernel || { echo "FAILED on $kernel"; exit 1; }
	kill $vm 2>/dev/null
	wait $vm 2>/dev/null
done
exit 0
