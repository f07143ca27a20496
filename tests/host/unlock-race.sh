#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The last locked cell agrees to its end while a CPU of Linux is about to halt Linux, which wants
# the machine to be reset: the cell was still locked when that was decided, and does not know yet
# that Linux is halted. The machine is reset all the same. QEMU's server for debuggers holds that
# CPU meanwhile, at the function that halts Linux.
# tier: full
set -u
image=target/parts/bare/x86_64-unknown-none/release/crtos-hypervisor
place=$(nm -C $image | awk '$3 == "crtos_hypervisor::resets::halt_linux" { print $1 }')
[ -n "$place" ] || { echo "$image has no such function"; exit 1; }
dir=$(mktemp -d)
trap 'kill $vm $answers 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
fail() { echo "FAILED $*"; cat "$dir/out"; exit 1; }
# says LETTER: waits until the cell has written that to the port.
says() {
	for _ in {1..600}; do
		grep -aqs "$1" "$dir/port" && return
		kill -0 $vm 2>/dev/null || return 1
		sleep 0.1
	done
	return 1
}
# tell PACKET: to the server, in the remote protocol of GDB.
tell() {
	local sum=0 i code
	for ((i = 0; i < ${#1}; i++)); do
		printf -v code %d "'${1:i:1}"
		sum=$((sum + code))
	done
	printf "\$%s#%02x" "$1" $((sum % 256)) >&8
}
# hear: the next packet of the server, in $packet.
hear() {
	read -r -t 60 -d '#' -u 8 packet && read -r -t 60 -N 2 -u 8 && printf + >&8 || return 1
	packet=${packet##*\$}
}
# ask PACKET ANSWER: what the answer begins with.
ask() {
	tell "$1"
	hear || packet=nothing
	[[ $packet = "$2"* ]] || fail "the server answers $1 by $packet"
}

mkdir "$dir/share"
mkfifo "$dir/monitor.in" "$dir/monitor.out"
cat "$dir/monitor.out" >/dev/null & answers=$!
./x vm --no-realm --monitor "$dir/monitor" --debugcon "$dir/port" --share "$dir/share" \
	--timeout 300 -- '
	insmod /usr/lib/crtos-tests/attack/$(uname -r)/attack.ko
	crtos cell create last --cpus 3 --memory 4M --port 0xe9 >/dev/null &&
		crtos cell start last /usr/lib/crtos/inmates/prober.elf \
			--command-line "idle-count tells agrees" &&
		crtos cell lock last || exit 1
	touch /mnt/share/ready
	until [ -e /mnt/share/go ]; do sleep 0.2; done
	taskset -c 0 sh -c "sleep 2; crtos cell doorbell last" &
	taskset -c 1 sh -c "echo outb 0xcf9 6 >/sys/kernel/debug/attack"
	sleep 600' </dev/null >"$dir/out" 2>&1 &
vm=$!
until [ -e "$dir/share/ready" ]; do
	kill -0 $vm 2>/dev/null || fail 'the cell is not locked'
	sleep 0.2
done
port=$((20000 + RANDOM % 10000))
echo "gdbserver tcp:127.0.0.1:$port" >"$dir/monitor.in"
for _ in {1..50}; do exec 8<>/dev/tcp/127.0.0.1/$port && break; sleep 0.2; done 2>/dev/null

# Threads are CPUs, from 1 on. 2 is held, the others go on.
ask 'qSupported:multiprocess+;vContSupported+' PacketSize
ask "Z1,$place,1" OK
touch "$dir/share/go"
ask vCont\;c T05thread:p01.02
ask "z1,$place,1" OK
tell 'vCont;c:p1.1;c:p1.3;c:p1.4'
says R || fail 'the cell does not hear its doorbell, or hears too late'
# It agrees a millisecond later.
sleep 2
printf '\x03' >&8
hear || fail 'the server says nothing'
kill -0 $vm 2>/dev/null || fail 'the machine ends before Linux is halted'
ask D\;1 OK
for _ in {1..300}; do
	kill -0 $vm 2>/dev/null || exit 0
	sleep 0.1
done
fail 'the machine is not reset'
