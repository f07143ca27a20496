#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The module explains what it refuses, and leaves nothing of it behind.
# kernels: 6.12
# more kernels: 6.1 6.1-rt 6.12-rt
# realm: no
# shared: yes
# timeout: 600
set -u
# A hypervisor that never ran.
crtos down --unload && modprobe crtos || exit 1
dmesg --clear
cat >/tmp/refusals.py <<'P'
import ctypes, fcntl, os, struct, sys

ENABLE, DISABLE, CREATE, LOAD = 0xc701, 0xc702, 0xc228c703, 0x4020c704
START, STOP, DESTROY = 0x4020c705, 0xc706, 0xc707
REPORT, CHANNEL, REASON = 0x4020c711, 0x4020c712, 0x8100c713
DOORBELL, WRITE, SPAWN = 0xc714, 0x4020c715, 0xc020c720
MIB = 1 << 20
device = os.open('/dev/crtos', os.O_RDWR | os.O_CLOEXEC)
failed = False

def reason():
    text = bytearray(256)
    fcntl.ioctl(device, REASON, text, True)
    return bytes(text).split(b'\0')[0].decode()

def call(number, argument=0):
    """The result, or the reason of the refusal."""
    try:
        mutable = [True] if isinstance(argument, bytearray) else []
        return fcntl.ioctl(device, number, argument, *mutable)
    except OSError as error:
        return f'{error.strerror}: {reason()}'

def create(cpus, private=2 * MIB, shared=0, vector=0x50, flags=0, linux_cpu=0, link_vector=0x51):
    masks = [0] * 4
    for cpu in cpus:
        masks[cpu // 64] |= 1 << cpu % 64
    words = flags, vector, 0, 0, linux_cpu, link_vector
    head = struct.pack('<32s4QQQIIIIII', b'test', *masks, private, shared, *words)
    return call(CREATE, bytearray(head) + bytes(0x228 - len(head)))

def transfer(number, cell, offset, length):
    buffer = ctypes.create_string_buffer(max(length, 1))
    address = ctypes.addressof(buffer)
    return call(number, bytearray(struct.pack('<IIQQQ', cell, 0, offset, address, length)))

def expect(what, result, *words):
    global failed
    if not isinstance(result, str) or not all(word in result for word in words):
        failed = True
        print(f'{what}: {result!r} does not say {words}')

def succeeds(what, result):
    global failed
    if isinstance(result, str):
        failed = True
        print(f'{what}: {result}')
    return result

def online():
    return open('/sys/devices/system/cpu/online').read().strip()

def hotplug(cpu, state):
    """Does Linux do it?"""
    file = os.open(f'/sys/devices/system/cpu/cpu{cpu}/online', os.O_WRONLY)
    try:
        return os.write(file, state.encode()) == 1
    except OSError:
        return False
    finally:
        os.close(file)

def check(what, condition):
    global failed
    if not condition:
        failed = True
        print(what)
P
cat >/tmp/disabled.py <<'P'
exec(open('/tmp/refusals.py').read())
expect('disable', call(DISABLE), 'does not run')
expect('create', create([1]), 'does not run')
expect('destroy', call(DESTROY, 3), 'no cell 3')
expect('stop', call(STOP, 99), 'no cell 99')
expect('report', transfer(REPORT, 0, 0, 64), 'never ran')
expect('spawn', call(SPAWN, bytearray(32)), 'No such process', 'crtos up')
expect('unknown', call(0xc77f), 'Inappropriate ioctl')
sys.exit(failed)
P
cat >/tmp/image.py <<'P'
exec(open('/tmp/refusals.py').read())
expect(sys.argv[1], call(ENABLE), *sys.argv[2:])
sys.exit(failed)
P
cat >/tmp/enabled.py <<'P'
exec(open('/tmp/refusals.py').read())
before = online()
last = os.sysconf('SC_NPROCESSORS_CONF') - 1
succeeds('enable', call(ENABLE))
expect('again', call(ENABLE), 'already')
expect('no CPU', create([]), '0 CPUs')
expect('absent CPU', create([200]), 'no CPU 200', f'0-{last}')
expect('boot CPU', create([0]), 'boot CPU')
expect('odd memory', create([last], private=MIB), 'multiples of 2 MiB')
expect('no memory', create([last], private=0), 'at least 2 MiB')
expect('much memory', create([last], shared=400 << 30), 'MiB available')
expect('vector', create([last], vector=3), 'vector 3')
expect('vector of links', create([last], link_vector=0x100), 'or 256')
expect('calls to its own CPU', create([last], linux_cpu=last), f'CPU {last} is to take', f'one of CPUs 0-{last - 1}')
expect('calls to an absent CPU', create([last], linux_cpu=4000000), 'CPU 4000000 is to take')
expect('flags', create([last], flags=8), 'unknown flags 8')
check(f'CPUs online: {online()}, were {before}', online() == before)
cell = succeeds('create', create([last], private=4 * MIB, shared=2 * MIB))
expect('CPU of a cell', create([last]), f'CPU {last}', "'test'")
expect('disable', call(DISABLE), "'test'")
expect('load', call(LOAD, bytearray(struct.pack('<IIQQQ', cell, 0, 4 * MIB - 8, 0, 16))), 'do not fit', '4 MiB')
expect('load from nowhere', call(LOAD, bytearray(struct.pack('<IIQQQ', cell, 0, 0, 8, 16))), 'bad address')
expect('beyond the block', transfer(CHANNEL, cell, 2 * MIB - 4, 8), 'outside')
expect('beyond the report', transfer(REPORT, 0, 256 * 1024 - 4, 8), 'outside')
succeeds('read', transfer(CHANNEL, cell, 2 * MIB - 8, 8))
succeeds('write', transfer(WRITE, cell, 0, 4096))
expect('spawn', call(SPAWN, bytearray(32)), 'crtos up')
check('Linux took a CPU of a cell', not hotplug(last, '1'))
succeeds('destroy', call(DESTROY, cell))
check(f'CPUs online: {online()}, were {before}', online() == before)
# A CPU that is offline at the launch, or goes offline later, stays so, under the hypervisor. It
# comes back to leave.
succeeds('disable', call(DISABLE))
check('hotplug', hotplug(last, '0'))
succeeds('enable', call(ENABLE))
check(f'CPUs online: {online()}', online() == f'0-{last - 1}')
expect('offline CPU', create([last]), 'offline in Linux', 'chcpu')
check('hotplug', hotplug(last, '1'))
succeeds('disable', call(DISABLE))
succeeds('enable', call(ENABLE))
check('hotplug', hotplug(last, '0'))
expect('offline CPU', create([last]), 'offline in Linux', 'chcpu')
succeeds('disable', call(DISABLE))
check('hotplug', hotplug(last, '1'))
# Whatever is not kept is undone when the file is released, here by the end of the process.
succeeds('enable', call(ENABLE))
succeeds('create', create([last], private=4 * MIB, shared=2 * MIB, flags=1))
sys.exit(failed)
P
online=$(cat /sys/devices/system/cpu/online)
status=0
python3 /tmp/disabled.py || status=1
# with_image OFFSET VALUE WORDS...: a module whose hypervisor's image has VALUE at OFFSET says so.
with_image() {
	python3 - "$(modinfo --filename crtos)" "$1" "$2" <<'P' || return 1
import re, struct, sys
module = bytearray(open(sys.argv[1], 'rb').read())
(image,) = re.finditer(rb'CRTOSHV1.{4}\0{4}', module, re.DOTALL)
struct.pack_into('<Q', module, image.start() + int(sys.argv[2]), int(sys.argv[3]))
open('/tmp/other.ko', 'wb').write(module)
P
	rmmod crtos && insmod /tmp/other.ko && python3 /tmp/image.py "image with $2 at $1" "${@:3}"
}
with_image 0 0 'without a hypervisor' || status=1
with_image 8 77 'version 77' || status=1
with_image 16 1 'contradicts itself' || status=1
with_image 24 4096 'contradicts itself' || status=1
rmmod crtos && modprobe crtos || exit 1
dmesg --clear
python3 /tmp/enabled.py || status=1
await 'rmmod crtos 2>/dev/null'
[ -e /dev/crtos ] && { echo 'the module cannot be unloaded'; status=1; }
[ "$(cat /sys/devices/system/cpu/online)" = "$online" ] || { echo "CPUs online: $(cat /sys/devices/system/cpu/online)"; status=1; }
complaints | grep . && status=1
exit $status
