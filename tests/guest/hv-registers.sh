#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux accesses registers that cause an exit. What the processor would refuse is a fault and does
# not harm the hypervisor. The registers of machine checks are there.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe msr || exit 1
# read or write REGISTER [VALUE]: exit status 5 if it faults
register() {
	python3 - "$@" <<'PY'
import os, sys
descriptor = os.open("/dev/cpu/0/msr", os.O_RDWR)
number = int(sys.argv[2], 0)
try:
    if sys.argv[1] == "read":
        print(int.from_bytes(os.pread(descriptor, 8, number), "little"))
    else:
        os.pwrite(descriptor, int(sys.argv[3], 0).to_bytes(8, "little"), number)
except OSError as error:
    raise SystemExit(error.errno)
PY
}
faults() {
	register "$@" 2>/dev/null
	[ $? = 5 ] || fail "no fault: $*"
}

pat=$(register read 0x277) || fail 'PAT'
efer=$(register read 0xc0000080) || fail 'EFER'
syscfg=$(register read 0xc0010010) || fail 'SYSCFG'
crtos cell create cell --cpus 3 --memory 4M || exit 1

faults write 0x277 0x0007040600070402
faults write 0x277 $((pat | 1 << 62))
for bit in 1 13 16 40; do faults write 0xc0000080 $((efer | 1 << bit)); done
faults write 0xc0010010 $((syscfg ^ 1 << 23))
faults read 0xc0003000
faults write 0x40000071 0xc0500
register write 0x277 "$pat" || fail 'PAT back'
register write 0xc0000080 "$efer" || fail 'EFER back'
register write 0xc0010010 "$syscfg" || fail 'SYSCFG back'
[ "$(register read 0x277)" = "$pat" ] || fail 'PAT has changed'
register read 0xc0002001 >/dev/null || fail 'machine-check status cannot be read'
register write 0xc0002001 0 || fail 'machine-check status cannot be written'

crtos stats >/dev/null || fail 'stats'
[ "$(taskset -c 0 echo there)" = there ] || fail 'CPU 0'
crtos log | grep 'died' && fail 'the hypervisor died'
crtos cell destroy cell || fail 'destroy'
crtos down || fail 'down'
exit $failed
