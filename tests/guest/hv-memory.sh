#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Private memory is clear when a cell gets it and when Linux gets it back. In between Linux gets a
# fault when it touches it.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# mem: 1G
# timeout: 600
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
wait_for() { await "crtos log | grep -q '$1'"; }

# Something for the cell to find, if memory were not cleared.
python3 -c 'x = b"\x55" * (400 << 20)'
crtos cell create filled --cpus 2-3 --memory 64M || exit 1
crtos cell start filled $inmates/prober.elf --command-line fill || exit 1
wait_for 'filled: prober: .* words were not clear' || fail 'the cell does not run'
wait_for 'filled: prober: 0 words were not clear' || fail 'memory was not clear'

# Linux reads a hidden page by a probe that fetches memory: the fetch fails, nothing else happens.
dmesg --clear
address=$(python3 - <<'PY'
import struct
flags = open("/proc/kpageflags", "rb")
frame = 0
hidden = []
while data := flags.read(8 << 16):
    for (value,) in struct.iter_unpack("<Q", data):
        if value & 1 << 23:
            hidden.append(frame << 12)
        frame += 1
core = open("/proc/kcore", "rb")
header = core.read(64)
offset, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
target = hidden[len(hidden) // 2]
for index in range(count):
    core.seek(offset + index * size)
    kind, _, _, virtual, physical, length = struct.unpack_from("<IIQQQQ", core.read(size))
    if kind == 1 and physical <= target < physical + length and virtual < 0xffffffff80000000:
        print(hex(virtual + target - physical))
        break
PY
)
echo "hidden page at $address"
mount -t tracefs none /sys/kernel/tracing 2>/dev/null
cd /sys/kernel/tracing || exit 1
echo "p:hidden do_sys_openat2 word=@$address:string" >kprobe_events || fail 'no probe'
echo 1 >events/kprobes/hidden/enable
cat /etc/hostname >/dev/null
echo 0 >events/kprobes/hidden/enable
grep -q 'word=(fault)' trace || { grep -m3 hidden trace; fail 'no fault'; }
echo >kprobe_events
cd / || exit 1
complaints | grep . && fail 'dmesg'
crtos log | grep -q 'root: touches memory that it does not have' || fail 'log'

crtos cell destroy filled || fail 'destroy'
crtos down || fail 'down'
# Nothing of the cell is left in the memory that Linux got back.
python3 - <<'PY' || fail 'memory was not cleared'
import struct, sys
mark = 0x5ec2e700
pattern = struct.pack("<Q", mark << 32 | ~mark & 0xffffffff)
core = open("/proc/kcore", "rb", buffering=0)
header = core.read(64)
offset, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
seen = found = 0
for index in range(count):
    core.seek(offset + index * size)
    kind, _, place, virtual, physical, length = struct.unpack_from("<IIQQQQ", core.read(size))
    if kind != 1 or physical == 2**64 - 1 or virtual >= 0xffffffff80000000:
        continue
    core.seek(place)
    while length > 0:
        data = core.read(min(length, 4 << 20))
        if not data:
            break
        length -= len(data)
        seen += len(data)
        found += data.count(pattern)
print(f"{seen >> 20} MiB searched, {found} words of the cell found")
# The pattern itself, and copies of it, are a few words.
sys.exit(seen < 800 << 20 or found > 64)
PY
exit $failed
