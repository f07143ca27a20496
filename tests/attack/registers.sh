#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Registers that all CPUs share, that say where memory lies, or that would outlast their owner:
# Linux's kernel does not change them, a cell neither leaves them behind nor finds what Linux left.
# What Linux does when it takes a CPU offline and online again works, and warns of nothing.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# timeout: 600
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
FAULT=-5
# CPU 0's register REGISTER
register() { attack rdmsr 0 "$1"; }
# flip REGISTER BITS: writes the register with these bits changed, of 0 if it cannot be read. Sets
# what it was before, the error, and what it is after.
flip() {
	before=$(register "$1")
	error=$(attack wrmsr 0 "$1" $(((before == FAULT ? 0 : before) ^ $2)))
	after=$(register "$1")
}

# kept REGISTER BITS: a write that changes these bits fails, and they stay. What is there may be
# written.
kept() {
	local before after error
	flip "$1" "$2"
	[ "$error" = $FAULT ] || fail "write to $1: $error"
	[ $((after)) = $((before)) ] || fail "register $1: $before before, $after after"
}
# swallowed REGISTER BITS: such a write has no effect, and nobody is told.
swallowed() {
	local before after error
	flip "$1" "$2"
	[ "$error" = 0 ] || fail "write to $1: $error"
	[ "$after" = "$before" ] || fail "register $1: $before before, $after after"
}
# A free register takes what Linux writes.
free() {
	local before after error
	flip "$1" "$2"
	[ "$error" = 0 ] || fail "write to $1: $error"
	[ $((after)) = $((before ^ $2)) ] || fail "register $1: $before before, $after after"
	[ "$(attack wrmsr 0 "$1" "$before")" = 0 ] || fail "write back to $1"
}

attacker || exit 1
crtos cell create hostile --cpus 3 --memory 4M || exit 1
dmesg --clear

# Memory type ranges: the first of the variable ones, the fixed ones, a reserved bit of their
# default.
kept 0x200 0x100000
kept 0x201 0x800
for number in 0x250 0x258 0x259 0x268 0x26f; do kept $number 0x0202020202020202; done
kept 0x2ff 0x1000
# Time stamp counter, its offset, the ratio of a guest's.
[ "$(attack wrmsr 0 0x10 1)" = $FAULT ] || fail 'write to the time stamp counter'
kept 0x3b 0x1000
kept 0xc0000104 0x200000000
# Base of the local APIC.
kept 0x1b 0x1000000
# SYSCFG: encryption with one key, with several, use of TOP_MEM2. HWCR: the lock of system
# management. I/O ranges, TOP_MEM, TOP_MEM2, northbridge, base of configuration space.
kept 0xc0010010 0x800000
kept 0xc0010010 0x4000000
kept 0xc0010010 0x200000
kept 0xc0010015 0x1
for number in 0xc0010016 0xc0010017 0xc0010018 0xc0010019 0xc001001a 0xc001001d 0xc0010058; do
	kept $number 0x800000
done
kept 0xc001001f 0x1
# System management: traps and trigger of ports, base, ranges.
for number in 0xc0010050 0xc0010054 0xc0010056 0xc0010111 0xc0010112 0xc0010113; do
	kept $number 0x20000
done
# Voltages, states of sleep, doorbells of virtual interrupt controllers, tables of encryption.
for number in 0xc0010064 0xc0010073 0xc001011b 0xc0010132 0xc0010133; do kept $number 0x2000; done
# Behind all that the processor's bitmaps cover.
[ "$(attack wrmsr 0 0x4b564d00 1)" = $FAULT ] || fail 'write to 0x4b564d00'

# Memory type ranges on and off, the loader of microcode, SVM.
swallowed 0x2ff 0xc00
swallowed 0x2ff 0x6
swallowed 0xc0010020 0x1000
swallowed 0xc0010114 0x10
swallowed 0xc0010117 0x1000
free 0xc0000103 0x1000

# A cell gets no register that Linux may not write.
for range in 0xc001001a:w 0xc0000104:rw 0x200-0x20f:rw 0xc0010015:w; do
	crtos cell create granted --cpus 2 --memory 4M --msr $range 2>/dev/null && {
		fail "granted $range"
		crtos cell destroy granted
	}
done
crtos cell create granted --cpus 2 --memory 4M --msr 0xc0010000-0xc0010007:rw ||
	fail 'counters are not granted'
crtos cell destroy granted

# run COMMAND...: the cell runs it, and is stopped. One line of the log tells each run.
runs=0
run() {
	runs=$((runs + 1))
	crtos cell start hostile $inmates/prober.elf --command-line "$*" || fail "$*: start"
	await "[ \"\$(crtos log | grep -c 'hostile: prober: still alive\\|hostile: stopped: ')\" = $runs ]" ||
		fail "$*: does not end"
	crtos cell stop hostile || fail "$*: stop"
}
said() { crtos log | grep -o 'hostile: prober: register .*' | tail -1; }
run msr-write msr=0xc0000104 value=0x200000000
crtos log | grep -q 'hostile: stopped: write to a register that is not the cell.s at 0xc0000104' ||
	fail 'the cell writes the ratio of its clock'
# Neither what Linux had left there nor what the last program had.
run msr-read msr=0xc0000103
[ "$(said)" = 'hostile: prober: register 0x0' ] || fail "TSC_AUX of Linux: $(said)"
run msr-write msr=0xc0000103 value=0x1234
run msr-read msr=0xc0000103
[ "$(said)" = 'hostile: prober: register 0x0' ] || fail "TSC_AUX of the last program: $(said)"
crtos cell destroy hostile || fail destroy

# Linux has the CPU back, with its own values and the right clock.
[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'CPUs online'
[ $(($(attack rdmsr 3 0xc0000103) & 0xfff)) = 3 ] || fail "TSC_AUX of CPU 3"
now() { taskset -c "$1" cut -d' ' -f1 /proc/uptime | tr -d .; }
begun=$(now 0) begun_there=$(now 3)
sleep 2
here=$(($(now 0) - begun)) there=$(($(now 3) - begun_there))
[ $((here - there)) -lt 50 ] && [ $((there - here)) -lt 50 ] ||
	fail "$here hundredths of a second on CPU 0, $there on CPU 3"

# CPUs come and go.
for cpu in 1 2; do
	echo 0 >/sys/devices/system/cpu/cpu$cpu/online || fail "CPU $cpu offline"
	echo 1 >/sys/devices/system/cpu/cpu$cpu/online || fail "CPU $cpu online"
	[ "$(taskset -c $cpu echo there)" = there ] || fail "nothing runs on CPU $cpu"
done
rmmod attack
crtos log | grep 'died' && fail 'the hypervisor died'
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
