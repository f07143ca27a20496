#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# As in broken-machines, where something else is in the way: a cell, a second realm, a program, a
# disk, a Linux that is locked down. Sleep of the machine is refused in Linux's log.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# tier: full
# timeout: 600
# uses: explained
# Variables are those of common/explained.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
last=$(($(getconf _NPROCESSORS_CONF) - 1))
up=(crtos up --cpus "$last" --memory 128M)

# A CPU on which somebody uses SVM, who is no driver.
modprobe msr || exit 1
svm() {
	python3 -c 'import os, struct, sys
file = os.open("/dev/cpu/1/msr", os.O_RDWR)
value = struct.unpack("<Q", os.pread(file, 8, 0xc0000080))[0]
os.pwrite(file, struct.pack("<Q", value ^ 0x1000), 0xc0000080)'
}
well svm
explained 'SVM is on' other-hypervisor 'another hypervisor uses SVM' "${up[@]}"
well svm

# A second one of something, and what is in use.
well crtos cell create other --cpus 1 --memory 4M
explained 'a CPU of a cell' cpu-taken 'a cell has it already' crtos up --cpus 1 --memory 128M
explained 'another choice of transfers' linux-dma 'with another choice of --linux-dma' "${up[@]}" --linux-dma checked
explained 'a cell of that name' cell-exists 'a cell of that name' crtos cell create other --cpus 2 --memory 4M
well crtos cell destroy other
well "${up[@]}"
explained 'a port of Linux' ports-in-use 'uses one of the ports' crtos device add 0x3f8-0x3ff
explained 'a second realm' already-up "already up on CPU $last" crtos up --cpus 1 --memory 128M
crtos run -- sleep 1000 & program=$!
await 'crtos ps | grep -q sleep'
explained 'programs live' programs-live 'sleep' crtos down
kill $program
wait $program 2>/dev/null

# Programs.
echo hello >text
chmod +x text
explained 'no program' program-not-found 'program not found' crtos run -- ./absent
explained 'a text' program-format 'not an x86-64 ELF' crtos run -- ./text
mv /usr/lib/crtos/shadow away.shadow
explained 'no shadow' part-damaged '/usr/lib/crtos/shadow: No such file' crtos run -- /bin/true
mv away.shadow /usr/lib/crtos/shadow

# Files.
mkdir small
mount -t tmpfs -o size=64k none small
dd if=/dev/zero of=small/rest bs=1k status=none 2>/dev/null
explained 'a full disk' disk-full 'write small/trace: No space left' crtos trace -o small/trace --duration 1
mount -o remount,ro small
explained 'a file system for reading alone' file-denied 'write small/other: Read-only' \
	crtos trace -o small/other --duration 1

# Sleep of the machine.
dmesg --clear
echo freeze >/sys/power/state 2>/dev/null && fail 'the machine slept'
dmesg | grep -q 'crtos: \[sleep\] no sleep while the hypervisor runs: crtos down first' || fail 'no reason'
crtos explain sleep | grep -q '^Remedy: ' || fail 'no section'
count=$((count + 1))

# What clears by a reboot alone comes last.
well crtos down
mountpoint -q /sys/kernel/security || mount -t securityfs none /sys/kernel/security
echo integrity >/sys/kernel/security/lockdown || fail 'no lockdown'
explained 'a locked-down Linux' lockdown 'Linux is locked down' "${up[@]}" --port 0x80
well crtos down --unload
explained 'Secure Boot' module-signature 'takes signed modules only' "${up[@]}"
sysctl -q kernel.modules_disabled=1
explained 'no more modules' module-blocked 'takes no module now' "${up[@]}"

echo "$count broken machines"
[ $count -ge 16 ] || fail 'too few'
exit "$failed"
