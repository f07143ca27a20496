#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# On each of many broken machines crtos says what is wrong, with a remedy and a code that has a
# section in docs/troubleshooting.md; the machine is as before.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# timeout: 600
# tier: full
# uses: explained
# Variables are those of common/explained.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
last=$(($(getconf _NPROCESSORS_CONF) - 1))
release=$(uname -r)
up=(crtos up --cpus "$last" --memory 128M)
as_nobody=(setpriv --reuid 65534 --clear-groups)

# The module's file.
crtos down --unload
module=$(find "/lib/modules/$release" -name 'crtos.ko*')
mv "$module" away.ko
explained 'no module' module-missing "crtos.ko is not installed for the running kernel ${release%%+*}" "${up[@]}"
found 'no module, checked' module-missing "no crtos.ko for Linux ${release%%+*}"
LC_ALL=C sed '/vermagic=/s/mod_unload/mod_upload/' away.ko >"$module"
explained 'a module for another kernel' module-build 'it was built for another kernel' "${up[@]}"
head -c 4096 away.ko >"$module"
explained 'a module that is cut off' module-build 'it was built for another kernel' "${up[@]}"
LC_ALL=C sed -E 's/interface=[0-9]+/interface=9/' away.ko >"$module"
found 'a module of another version' parts-differ 'has version 9, this command'
cp away.ko "$module"

# The other parts.
kernel=/usr/lib/crtos/kernel.elf
mv $kernel away.elf
explained 'no real-time kernel' part-damaged "load $kernel: No such file" "${up[@]}"
found 'no real-time kernel, checked' part-damaged "$kernel does not exist"
head -c 100 away.elf >$kernel
explained 'a real-time kernel that is cut off' image-unfit 'not an ELF file' "${up[@]}"
cp away.elf $kernel

# Who calls.
explained 'not root' not-permitted 'only root may take CPUs' "${as_nobody[@]}" "${up[@]}"
explained 'nothing is up' not-up 'crtos is not up' crtos ps
modprobe crtos
chmod 600 /dev/crtos
explained 'no permission' device-access 'no permission to use /dev/crtos' "${as_nobody[@]}" crtos ps
number=$(awk '$2 == "crtos" { print $1 }' /proc/misc)
rm /dev/crtos
explained '/dev/crtos removed' device-missing 'the module is loaded, and there is no /dev/crtos' "${up[@]}"
mknod -m 600 /dev/crtos c 10 "$number"

# CPUs.
well chcpu -d "$last" >/dev/null
explained 'a CPU offline' cpu-offline "CPU $last: it is offline" "${up[@]}"
well chcpu -e "$last" >/dev/null
if mkdir -p cgroup && mount -t cgroup2 none cgroup &&
	grep -qw cpuset cgroup/cgroup.controllers; then
	umount cgroup
	mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
	group=/sys/fs/cgroup/exclusive
	echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
	mkdir $group
	echo "$last" >$group/cpuset.cpus
	echo root >$group/cpuset.cpus.partition
	explained 'a CPU in an exclusive cpuset' cpu-exclusive "control group $group has it" "${up[@]}"
	echo member >$group/cpuset.cpus.partition
	rmdir $group
else
	fail 'no cpusets'
fi
# More SCHED_DEADLINE than the remaining CPUs could do.
cat >deadline.py <<'P'
import ctypes, os, struct, time
attr = struct.pack('<IIQiIQQQ', 48, 6, 0, 0, 0, 80_000_000, 100_000_000, 100_000_000)
for cpu in range(os.cpu_count()):
    if os.fork() == 0:
        if ctypes.CDLL(None, use_errno=True).syscall(314, 0, attr, 0):
            raise OSError(ctypes.get_errno(), 'sched_setattr')
        while True:
            time.sleep(1)
os.wait()
P
python3 deadline.py & tasks=$!
await '[ "$(ps -eLo cls | grep -c DLN)" -ge 4 ]' || fail 'no SCHED_DEADLINE'
explained 'SCHED_DEADLINE needs the CPU' cpu-needed "Linux does not give up CPU $last .*SCHED_DEADLINE" "${up[@]}"
pkill -P $tasks
wait $tasks 2>/dev/null

# Memory.
mkdir full
mount -t tmpfs -o size=100% none full
free=$(awk '/MemAvailable/ { print $2 }' /proc/meminfo)
dd if=/dev/zero of=full/memory bs=1M count=$((free / 1024 - 200)) status=none
explained 'memory used up' memory-short 'Linux can give up' crtos up --cpus "$last" --memory 512M
rm full/memory

# Other hypervisors.
if modprobe kvm_amd 2>/dev/null && [ -e /dev/kvm ]; then
	exec 7<>/dev/kvm
	python3 -c 'import fcntl, time
fcntl.ioctl(7, 0xae01, 0)
open("runs", "w").close()
time.sleep(1000)' & machine=$!
	await '[ -e runs ]'
	found 'a virtual machine of KVM, checked' other-hypervisor 'kvm_amd|KVM is in use'
	explained 'a virtual machine of KVM' other-hypervisor 'another hypervisor uses SVM' "${up[@]}"
	kill $machine
	wait $machine 2>/dev/null
	exec 7>&-
	# One that is only loaded gives way, also where it has the processor's virtualization, and
	# comes back: after a realm that does not start, and after one that has been there.
	"${up[@]}" --kernel /bin/true 2>/dev/null && fail 'a kernel that is none'
	[ -e /dev/kvm ] || fail 'KVM is gone after a realm that does not start'
	well "${up[@]}"
	well crtos down
	[ -e /dev/kvm ] || fail 'KVM is gone after the realm'
	well modprobe -r kvm_amd
else
	fail 'no KVM'
fi

# What ends a realm.
panic=$(sysctl -n kernel.panic)
sysctl -q kernel.panic=10
found 'Linux resets after a panic' ends-with-linux 'resets the machine after 10 s'
sysctl -q kernel.panic="$panic"
if modprobe softdog 2>/dev/null && [ -e /dev/watchdog0 ]; then
	exec 8>/dev/watchdog0
	explained 'a watchdog, and a locked realm' watchdog 'watchdog0 .*' "${up[@]}" --locked
	printf V >&8
	exec 8>&-
	modprobe -r softdog
fi

crtos down --unload || fail unload
echo "$count broken machines"
[ $count -ge 20 ] || fail 'too few'
exit "$failed"
