#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A cell uses a port that it has alone. Linux gets a fault there, and has the port again afterwards.
# kernels: 6.1
# realm: no
# shared: yes
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
# in al, dx for port 0x310, after ioperm
read_port() {
	python3 - <<'PY'
import ctypes, mmap
if ctypes.CDLL(None).ioperm(0x310, 1, 1):
    raise SystemExit(9)
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("66ba1003ecc3"))  # mov dx, 0x310; in al, dx; ret
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
PY
}
read_port || fail "the port cannot be read before: $?"
crtos cell create port --cpus 3 --port 0x310:exclusive || exit 1
read_port 2>/dev/null
[ $? = 139 ] || fail 'Linux reads the port of the cell'
crtos cell create second --cpus 2 --port 0x30f-0x311 2>/dev/null && fail 'a second cell gets the port'
crtos cell start port $inmates/prober.elf --command-line 'port port=0x310' || fail 'start'
await "crtos log | grep -q 'port: prober: still alive'" || fail 'the cell cannot read its port'
crtos cell destroy port || fail 'destroy'
read_port || fail "the port cannot be read afterwards: $?"
crtos down || fail 'down'
exit $failed
