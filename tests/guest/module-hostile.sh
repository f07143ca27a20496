#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Somebody who uses the device by hand and with bad intent gets neither rights nor memory of others,
# and leaves a realm that works. A page that Linux still holds when its program is
# gone stays that program's.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
status=0
crtos up --cpus 3 --memory 512M || exit 1
dmesg --clear

cat >hostile.py <<'P'
import ctypes, errno, fcntl, mmap, os, resource, struct, sys, threading, time

SPAWN, THREAD, REMOTE, SIGNAL = 0xc020c720, 0xc721, 0xc048c722, 0x4030c723
REPORT, CHANNEL = 0x4020c711, 0x4020c712
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_ulong]
failed = False

def check(what, result, *expected):
    global failed
    if result not in expected:
        failed = True
        print(f'{what}: {result}, not {expected}')

def call(device, number, argument=0):
    """None or the error's name; a buffer is changed."""
    try:
        fcntl.ioctl(device, number, argument, *([True] if isinstance(argument, bytearray) else []))
    except OSError as error:
        return errno.errorcode[error.errno]

def spawn():
    device, argument = os.open('/dev/crtos', os.O_RDWR), bytearray(32)
    return device, call(device, SPAWN, argument), *struct.unpack_from('<II', argument)

def remote(slot, has_result=0):
    return bytearray(struct.pack('<IIq', slot, has_result, 0)) + bytes(56)

def siginfo(number):
    return bytearray(struct.pack('<I', number)) + bytes(44)

def transfer(number, cell, offset, length, buffer):
    return call(device, number, bytearray(struct.pack('<IIQQQ', cell, 0, offset, buffer, length)))

def map_at(address, number, offset, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ):
    FIXED = 0x10
    result = libc.mmap(address, 4096, prot, flags | FIXED, device, number << 47 | offset)
    return None if result == address else errno.errorcode[ctypes.get_errno()]

if len(sys.argv) > 1:
    # The image that a second thread executed: the slots are no longer its own.
    device, slots = int(sys.argv[1]), map(int, sys.argv[2:])
    time.sleep(3)
    for slot in slots:
        check('remote after exec', call(device, REMOTE, remote(slot)), 'ESRCH', 'EINVAL')
    os._exit(failed)

device = os.open('/dev/crtos', os.O_RDWR)
for number in (0xc701, 0xc702, 0xc228c703, 0x4020c704, 0x4020c705, 0xc706, 0xc707, 0xc708, 0xc714,
               0x4020c715):
    check(f'{number:#x}', call(device, number, bytearray(0x228) if number > 0xffff else 0), 'EPERM')
memory = ctypes.create_string_buffer(64)
buffer = ctypes.addressof(memory)
for number in REPORT, CHANNEL:
    check('all', transfer(number, 0, 0, 64, buffer), None)
    for offset, length in ((1 << 64) - 1, 2), (1, (1 << 64) - 1), (1 << 63, 1 << 63), (1 << 30, 1):
        check('range', transfer(number, 0, offset, length, buffer), 'EINVAL')
    for pointer in 8, 0xffff888000000000, 0xffffffffff600000:
        check('pointer', transfer(number, 0, 0, 4096, pointer), 'EFAULT')
check('cell', transfer(CHANNEL, 0xffffffff, 0, 1, buffer), 'ENOENT')

check('no process', call(device, REMOTE, remote(0)), 'ESRCH')
check('no process', call(device, THREAD), 'ESRCH')
os.close(device)
device, error, process, slot = spawn()
check('spawn', error, None)
check('spawn again', call(device, SPAWN, bytearray(32)), 'EBUSY')
check('thread again', call(device, THREAD), 'EINVAL')
check('slot of others', call(device, REMOTE, remote(slot ^ 1)), 'EINVAL')
check('no slot', call(device, REMOTE, remote(0xffffffff)), 'EINVAL')
check('early result', call(device, REMOTE, remote(slot, 1)), 'EINVAL')
for number in 0, 65, (1 << 31) - 1:
    check('signal', call(device, SIGNAL, siginfo(number)), 'EINVAL')
there = 0x10_0000_0000
check('process of others', map_at(there, process ^ 1, there), 'EPERM')
check('another address', map_at(there, process, there + 4096), 'EPERM')
check('private', map_at(there, process, there, mmap.MAP_PRIVATE), 'EINVAL')
check('code', map_at(there, process, there, prot=mmap.PROT_READ | mmap.PROT_EXEC), 'EACCES')
check("the shadow's range", map_at(0x7e00_0000_0000, process, 0x7e00_0000_0000), 'EINVAL')
check('map', map_at(there, process, there), None)
check('fault without a request', transfer(CHANNEL, 0, 0, 4096, there), 'EFAULT')
others = []
thread = threading.Thread(target=lambda: others.append(call(device, REMOTE, remote(slot))))
thread.start()
thread.join()
check("another thread's slot", others, ['EINVAL'])
def flood():
    for _ in range(2000):
        call(device, SIGNAL, siginfo(10))
# Each waits until the one before was taken.
threading.Thread(target=flood, daemon=True).start()
time.sleep(0.5)
if os.fork() == 0:
    check('a child', call(device, THREAD), 'EINVAL')
    check('a child', call(device, REMOTE, remote(slot)), 'EINVAL')
    check('a child', map_at(there, process, there), 'EPERM')
    os._exit(failed)
check('a child', os.wait()[1], 0)

# A second thread executes: it gets the id of the first one, which has ended.
if os.fork() == 0:
    device, error, process, slot = spawn()
    os.set_inheritable(device, True)
    def execute():
        second = fcntl.ioctl(device, THREAD)
        os.execv(sys.executable, ['python3', __file__, str(device), str(slot), str(second)])
    threading.Thread(target=execute).start()
    time.sleep(60)
check('exec by a second thread', os.wait()[1], 0)

# All slots there are.
errors = [spawn()[1] for _ in range(1030)]
check('slots', set(errors) - {None}, {'EAGAIN'}, {'EAGAIN', 'ENOMEM'})
sys.exit(failed)
P

# As a member of a group that may use the device.
chgrp 12345 /dev/crtos; chmod 660 /dev/crtos; chmod 755 . ; chmod 644 hostile.py
ulimit -n 4096
timeout 250 python3 -c '
import os, sys
os.setgroups([]); os.setgid(12345); os.setuid(12345)
os.execv(sys.executable, ["python3", "hostile.py"])' || { echo "hostile: $?"; status=1; }

# vmsplice(1, page of "A", ...), then exit: the page is in the pipe, where nobody else may write to
# it.
python3 - <<'P'
import os, struct
code = bytes.fromhex('b816010000 bf01000000 be00014000 ba01000000 4531d2 0f05 31ff b83c000000 0f05')
head = b'\x7fELF\2\1\1'.ljust(16, b'\0') + struct.pack('<HHIQQQIHHHHHH', 2, 62, 1, 0x400080, 64, 0, 0, 64, 56, 1, 64, 0, 0)
head += struct.pack('<IIQQQQQQ', 1, 7, 0, 0x400000, 0x400000, 0x2000, 0x2000, 0x1000)
file = (head.ljust(0x80, b'\0') + code).ljust(0x100, b'\0') + struct.pack('<QQ', 0x401000, 4096)
open('splice', 'wb').write(file.ljust(0x1000, b'\0') + b'A' * 4096)
os.chmod('splice', 0o755)
P
mkfifo pipe; exec 3<>pipe
crtos run -- ./splice >&3 || { echo "splice: $?"; status=1; }
sleep 3
for _ in 1 2; do
	crtos run -- busybox dd if=/dev/zero of=/dev/null bs=100M count=1 2>/dev/null ||
		{ echo "fill: $?"; status=1; }
done
[ "$(head -c 4096 <&3 | tr -d A | wc -c)" = 0 ] || { echo 'a page in a pipe was given to another program'; status=1; }
exec 3>&-
await 'crtos down >/dev/null 2>&1'
[ -z "$(crtos ps 2>/dev/null | tail -n +2)" ] || { crtos ps; status=1; }
# The device and its rights are gone with the module.
crtos down --unload || status=1
complaints | grep . && status=1
exit $status
