#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Cells work on a machine in xAPIC mode, where each access to the APIC exits: their bounds hold,
# INIT, NMI and CPU hotplug work, and neither an entry of the I/O APIC nor a command of Linux's
# local APIC reaches their CPUs.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# xapic: yes
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
ticks() { crtos cell shared other --length 8 --raw | od -An -tu8 | tr -d ' '; }
# Since `before`.
ticked() { [ "$(ticks)" -gt "$before" ]; }

crtos cell create other --cpus 3 --memory 4M || exit 1
crtos cell start other $inmates/latency.elf --command-line 'period=2000 ticks=1000000' || exit 1
crtos cell create probe --cpus 2 --memory 4M || exit 1
dmesg --clear
for what in icr-foreign 'icr-foreign target=3' icr-foreign-nmi icr-logical icr-init \
	icr-init-broadcast msr-read 'msr-write msr=0x80d' apic-page; do
	before=$(ticks)
	crtos cell start probe $inmates/prober.elf --command-line "$what" || fail "$what: start"
	await '[ "$(state probe)" = failed ]' || fail "$what: $(state probe)"
	[ "$(state other)" = running ] || fail "$what: the other cell $(state other)"
	await ticked || fail "$what: the other cell does not tick"
	crtos cell stop probe || fail "$what: stop"
done
for what in icr-broadcast icr-broadcast-nmi; do
	crtos cell start probe $inmates/prober.elf --command-line "$what" || fail "$what: start"
	await "crtos log | tail -3 | grep -q 'probe: prober: still alive'" || fail "$what: does not tell"
	[ "$(state probe)" = running ] || fail "$what: $(state probe)"
	crtos cell stop probe || fail "$what: stop"
done
crtos cell destroy probe || fail 'destroy'
# There is no IOMMU.
device=$(grep -lx 0x11e8 /sys/bus/pci/devices/*/device | cut -d/ -f6)
crtos device add "$device" --cell other --no-reset 2>&1 | grep -q 'no IOMMU confines' ||
	fail 'a device that nothing confines'
attacker || fail 'no attacker'
entry=$(attack redirect 8)
# That of the other cell.
apic=3
# By its number, also with the bit that would leave it to an IOMMU, all; and what takes a CPU of
# Linux away.
tried=($((apic << 56 | 96)) $((apic << 56 | 1 << 48 | 96)))
tried+=($((0xff << 56 | 96)) $((0xff << 56 | 0x860)) $((0x200)) $((0x500)))
# By its bit: later kernels give CPUs none.
case $(uname -r) in
6.1.*) tried+=($((1 << apic << 56 | 0x860))) ;;
esac
for value in "${tried[@]}"; do
	attack redirect 8 "$value" 0 >/dev/null
	(($(attack redirect 8) >> 16 & 1)) || fail "an entry is accepted: $value"
done
attack redirect 8 0x60 0 >/dev/null
[ "$(attack redirect 8)" = 0x60 ] || fail 'an entry for CPU 0 is refused'
attack redirect 8 "$entry" 0 >/dev/null
# Commands by the page of Linux's local APIC, and a store to the window of messages.
[ "$(attack command 1 0x4400)" -ge 1 ] || fail 'no command interrupts CPU 1'
nmis=$(nmi_exits 3)
for command in 0x4031 0x4131 0x4200 0x4400 0xc500 0x8500 0x4608; do
	attack command 3 $command >/dev/null || fail "no command $command"
	before=$(ticks)
	await ticked 100 || { echo "FAILED command $command reaches CPU 3"; exit 1; }
done
[ "$(nmi_exits 3)" = "$nmis" ] || fail "$(($(nmi_exits 3) - nmis)) commands reach CPU 3"
[ "$(attack message 3 0x400)" = -14 ] || fail 'a message to CPU 3 does not fault'
rmmod attack
before=$(ticks)
await ticked || fail 'the other cell does not tick'
for _ in 1 2 3; do
	echo 0 >/sys/devices/system/cpu/cpu2/online || fail 'offline'
	echo 1 >/sys/devices/system/cpu/cpu2/online || fail 'online'
done
echo 1 >/proc/sys/kernel/sysrq
echo l >/proc/sysrq-trigger
await "dmesg | grep -qE 'NMI backtrace for cpu [012]'" || fail 'no NMI backtrace'
dmesg | grep -E 'Uhhuh|Dazed|WARNING|BUG' && fail 'dmesg'
[ "$(state other)" = running ] || fail "the other cell $(state other)"
crtos down || fail 'down'
[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'CPUs online'
exit $failed
