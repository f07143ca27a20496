#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# I/O ports of a PCI function are to programs of the realm what they are under Linux:
# tests/abi/function-ports.c runs under Linux, and then in the realm, which has the function and
# with it the ports alone. If Linux takes them away, who uses them gets a fault, and nobody else.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# uarts: pci
# packages: pciutils
# uses: alike vfio
# tier: full
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
program=/usr/lib/crtos-tests/abi/function-ports
mapfile -t cards < <(lspci -Dnd 1b36:0002 | cut -d' ' -f1)
[ ${#cards[@]} -ge 2 ] || { echo 'there are no cards'; exit 1; }
export FUNCTION=${cards[0]}
place=/sys/bus/pci/devices/$FUNCTION
first=$(($(cut -d' ' -f1 "$place/resource" | head -n 1)))
modprobe crtos
echo "$FUNCTION" >"$place/driver/unbind"
echo 1 >"$place/enable"
natively 100 $program
echo 0 >"$place/enable"
dmesg --clear

crtos up --cpus 3 --memory 256M || exit 1
crtos device add "$FUNCTION" --no-reset || exit 1
alike 200 $program
# Whoever does not have them: Linux's programs, by instructions; and the realm those of the other
# card, which Linux has.
read_port() {
	"$@" python3 - "$((first + 7))" <<-'PY'
		import ctypes, mmap, sys
		port = int(sys.argv[1])
		if ctypes.CDLL(None).ioperm(port, 1, 1): raise SystemExit(9)
		code = mmap.mmap(-1, 4096, prot=7)
		code.write(b'\x66\xba' + port.to_bytes(2, 'little') + b'\xec\xc3')  # mov dx; in al, dx; ret
		ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
	PY
}
read_port crtos run -- || fail "the realm cannot read: $?"
read_port env 2>/dev/null
[ $? = 139 ] || fail 'Linux reads a port of the realm'
first=$(($(cut -d' ' -f1 "/sys/bus/pci/devices/${cards[1]}/resource" | head -n 1))) \
	read_port crtos run -- 2>/dev/null
[ $? = 9 ] || fail 'the realm gets a port of Linux'

# Programs that use the ports all the time, in three ways, when Linux takes the function away.
cat >uses.py <<'PY'
import ctypes, mmap, os, sys
kind, port = sys.argv[1], int(sys.argv[2])
file = os.open('/dev/port' if kind == 'port' else sys.argv[3], os.O_RDWR)
if kind == 'in':
    if ctypes.CDLL(None).iopl(3): raise SystemExit(9)
    code = mmap.mmap(-1, 4096, prot=7)
    code.write(b'\x66\xba' + port.to_bytes(2, 'little') + b'\xec\xeb\xfd')  # mov dx; in al, dx; jmp
    print('runs', flush=True)
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
print('runs', flush=True)
while True:
    os.pread(file, 1, port if kind == 'port' else 7)
PY
for round in 1 2; do
	pids=()
	for kind in in port file; do
		crtos run -- python3 uses.py $kind $((first + 7)) "$place/resource0" >$kind.out 2>$kind.err &
		pids+=($!)
		await "grep -q runs $kind.out" || fail "$kind does not run"
	done
	if [ $round = 1 ]; then
		# They do not keep it, as under Linux.
		await 'crtos device remove "$FUNCTION" 2>err' || { fail remove; cat err; }
	else
		echo 1 >"$place/remove"
	fi
	for index in 0 1 2; do
		await "! [ -d /proc/${pids[index]} ]" 300 || { fail "$index goes on"; kill -KILL "${pids[index]}"; }
		wait "${pids[index]}"
		statuses[index]=$?
	done
	[ "${statuses[*]}" = '139 1 1' ] || { fail "they end with ${statuses[*]}"; cat ./*.err; }
	grep -q 'Operation not permitted' port.err || { fail port; cat port.err; }
	grep -q 'Input/output error' file.err || { fail file; cat file.err; }
	timeout 60 crtos run -- true || fail 'the realm does not go on'
	[ $round = 2 ] || crtos device add "$FUNCTION" --no-reset || fail again
done
echo 1 >/sys/bus/pci/rescan
await '[ -e "$place" ]' || fail rescan

# By VFIO.
drives_by_vfio "$FUNCTION" || fail vfio-pci
export VFIO=1
natively 100 $program
crtos device add "$FUNCTION" --no-reset || fail 'add by VFIO'
alike 200 $program
crtos device remove "$FUNCTION" || fail 'remove by VFIO'
crtos log | tail -n 3
crtos down || fail down
drives_no_more "$FUNCTION"
[ "$(basename "$(readlink "$place/driver")")" = serial ] || fail 'its driver does not have it'
complaints | grep . && fail dmesg
exit $failed
