#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian 13's lsuio finds PCI functions of UIO, and a program drives one by its library libuio: one
# of Linux's, and then one of the realm's, in the realm.
# kernels: 6.12
# more kernels: 6.1
# tier: full
# realm: no
# shared: yes
# devices: yes
# packages: libglib2.0-0,libuio2/trixie,lsuio/trixie
# uses: edu
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
: "${edu:=}"
place=/sys/bus/pci/devices/$edu
modprobe -a uio_pci_generic crtos || exit 1
there_is() { await '[ -c "/dev/$(ls "$place/uio" 2>/dev/null)" ]' || fail 'there is no device'; }

# What edu is, and what one interrupt tells.
cat >drive.py <<'PY'
import ctypes, sys
library = ctypes.CDLL('libuio.so.2')
for name in 'uio_find_by_uio_num', 'uio_get_mem_addr':
    getattr(library, name).restype = ctypes.c_void_p
library.uio_get_mem_size.restype = ctypes.c_size_t
device = ctypes.c_void_p(library.uio_find_by_uio_num(int(sys.argv[1])))
print(library.uio_get_maxmap(device), hex(library.uio_get_mem_size(device, 0)))
assert library.uio_open(device) == 0
def read(offset):
    value = ctypes.c_uint32()
    assert library.uio_read32(device, 0, ctypes.c_ulong(offset), ctypes.byref(value)) == 0
    return value.value
def write(offset, value):
    assert library.uio_write32(device, 0, ctypes.c_ulong(offset), ctypes.c_uint32(value)) == 0
print(hex(read(0)))
write(4, 0x12345678)
print(hex(read(4)))
write(0x60, 5)
print(library.uio_irqwait_timeout(device, None), read(0x24))
write(0x64, 5)
print(read(0x24), library.uio_close(device))
PY

echo uio_pci_generic >"$place/driver_override"
echo "$edu" >/sys/bus/pci/drivers_probe
there_is
lsuio >linux
cat linux
grep -q uio_pci_generic linux || fail 'it does not find a function of Linux'
number=$(ls "$place/uio")
timeout 60 python3 drive.py "${number#uio}" >native || fail "libuio under Linux: status $?"
echo "$edu" >"$place/driver/unbind"
echo >"$place/driver_override"

crtos up --cpus 3 --memory 256M --device "$edu" --no-reset || exit 1
there_is
# Its version 0.3.0 aborts when it has printed all of a function without attributes.
lsuio >linux
status=$?
timeout 60 crtos run -- lsuio >realm
[ $? = $status ] || fail "status $status under Linux, another one in the realm"
[ -s realm ] && diff linux realm || fail 'the realm finds something else than Linux'
number=$(ls "$place/uio")
timeout 60 crtos run -- python3 drive.py "${number#uio}" >driven || fail "libuio: status $?"
cat driven
diff native driven || fail 'libuio does something else in the realm'
crtos down || fail down
exit $failed
