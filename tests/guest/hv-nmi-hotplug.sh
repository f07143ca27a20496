#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux's NMIs and CPU hotplug work under the hypervisor, beside a cell that notices nothing.
# kernels: 6.12
# more kernels: 6.1 6.1-rt 6.12-rt
# realm: no
# shared: yes
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
exits() { crtos stats --json | gojq '.cpus[3].exits_total'; }
ticks() { crtos cell shared other --length 8 --raw | od -An -tu8 | tr -d ' '; }

echo 1 >/proc/sys/kernel/sysrq
crtos cell create other --cpus 3 --memory 4M || exit 1
crtos cell start other $inmates/latency.elf --command-line 'period=1000 ticks=1000000' || exit 1
await '[ "$(ticks)" -gt 100 ]' || fail 'the cell does not begin to tick'
quiet=$(cat /proc/sys/kernel/printk)
dmesg -n 1
dmesg --clear
before=$(exits)
first=$(ticks)
stress-ng --quiet --cpu 2 --fork 2 --timeout 8 &
for _ in 1 2 3 4 5; do
	echo l >/proc/sysrq-trigger
	sleep 0.3
	echo 0 >/sys/devices/system/cpu/cpu2/online || fail 'offline'
	[ "$(cat /sys/devices/system/cpu/online)" = 0-1 ] || fail "online: $(cat /sys/devices/system/cpu/online)"
	echo 1 >/sys/devices/system/cpu/cpu2/online || fail 'online'
	[ "$(taskset -c 2 echo there)" = there ] || fail 'nothing runs on CPU 2'
done
wait
# What an NMI says is printed later.
backtraces() { dmesg | grep -cE 'NMI backtrace for cpu [012]'; }
await '[ "$(backtraces)" -ge 10 ]' || fail "$(backtraces) NMI backtraces"
dmesg | grep -E 'NMI backtrace for cpu 3|Uhhuh|Dazed|WARNING|BUG|\bstall' && fail 'dmesg'
[ "$(ticks)" -gt "$first" ] || fail 'the cell does not tick'
# An NMI and a vector that Linux's kernel sends to the cell's CPU do not reach it.
attacker || fail 'no attacker'
[ "$(attack nmi 3)" = '1 0' ] || fail "an NMI to the cell: $(attack nmi 3)"
[ "$(attack wrmsr 0 0x830 $((3 << 32 | 0x4031)))" = 0 ] || fail 'no interrupt command'
rmmod attack
first=$(ticks)
await '[ "$(ticks)" -gt "$first" ]' || fail 'the cell does not tick any more'
after=$(exits)
[ "$after" = "$before" ] || fail "$((after - before)) exits of the cell"
# The cell's CPU does not start for Linux.
echo 1 2>/dev/null >/sys/devices/system/cpu/cpu3/online
[ "$(cat /sys/devices/system/cpu/online)" = 0-2 ] || fail 'Linux got the CPU of the cell'
echo "$quiet" >/proc/sys/kernel/printk
crtos down || fail 'down'
[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'CPUs online'
exit $failed
