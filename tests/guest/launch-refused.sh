#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A CPU on which somebody else already uses virtualization does not take the hypervisor: the launch
# is undone on the others, says which CPU and why, and works once the CPU is free again.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
set -u
last=$(($(getconf _NPROCESSORS_CONF) - 1))
SVME=0x1000

# efer CPU and|or MASK: changes the register on that CPU.
efer() {
	taskset -c "$1" python3 - "$@" <<-'P'
		import os, struct, sys
		cpu, how, mask = sys.argv[1], sys.argv[2], int(sys.argv[3], 0)
		file = os.open(f"/dev/cpu/{cpu}/msr", os.O_RDWR)
		value = struct.unpack("<Q", os.pread(file, 8, 0xc0000080))[0]
		value = value | mask if how == "or" else value & ~mask
		os.pwrite(file, struct.pack("<Q", value), 0xc0000080)
	P
}

modprobe msr && modprobe crtos || exit 1
efer 2 or $SVME || exit 1
dmesg --clear
if crtos up --cpus "$last" --memory 128M 2>err; then
	echo "up succeeded although CPU 2 is taken"
	exit 1
fi
cat err
grep -q 'CPU 2' err && grep -qi 'another hypervisor' err || exit 1
[ "$(cat /sys/devices/system/cpu/online)" = "0-$last" ] || exit 1
efer 2 and $SVME || exit 1
crtos up --cpus "$last" --memory 128M && crtos run -- busybox true && crtos down || exit 1
# That Linux left out some of its words about registers may come from the script before.
! complaints | grep -v 'Write to unrecognized MSR\|please report\|msr: \|filter_write: ' | grep .
