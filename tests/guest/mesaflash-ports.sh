#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's mesaflash resets the FPGA of a card of Mesa Electronics and tells it what to be, by I/O
# ports of the card's bridge (iopl, in, out), in the realm as under Linux. The harness plays the
# card.
# kernels: 6.12
# tier: full
# more kernels: 6.1
# realm: no
# mesa: 5i20
# iommu: caching-mode=on
# packages: mesaflash,pciutils
# boot: pci=resource_alignment=12@pci:10b5:9030
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
run=(timeout 200)
mesa() {
	echo "mesaflash $*"
	"${run[@]}" mesaflash --device 5I20 "$@" 2>&1
	echo "status $?"
}

# Bitstreams as far as the card looks at them: the second one does not start it.
python3 - <<'PY'
import random, struct
def field(tag, text): return tag + struct.pack('>H', len(text) + 1) + text + b'\0'
def firmware(start):
    data = b'\xff' * 8 + bytes.fromhex('aa995566') + random.Random(1).randbytes(2000) + start
    return (bytes.fromhex('00090ff00ff00ff00ff0000001') + field(b'a', b'test')
        + field(b'b', b'2s200pq208') + field(b'c', b'2024/01/02') + field(b'd', b'03:04:05')
        + b'e' + struct.pack('>I', len(data)) + data)
open('first.bit', 'wb').write(firmware(bytes.fromhex('3000800100000005') + b'\0' * 16))
open('second.bit', 'wb').write(firmware(b'\0' * 24))
PY

programs() {
	mesa --reset
	mesa --readhmid
	mesa --program second.bit
	mesa --program first.bit
	mesa --verbose
	mesa --readhmid
	mesa --wpo 0x1108=0xffffff
	mesa --wpo 0x1008=0x123456
	mesa --rpo 0x1008
}
modprobe crtos
dmesg --clear
card=$(lspci -Dnd 10b5:9030 | cut -d' ' -f1)
[ "$card" ] || { echo 'there is no card'; exit 1; }
programs >linux.out
grep -v '^ *[0-9]' linux.out | head -n 60
grep -q 'no HOSTMOT2 firmware found' linux.out || fail 'it was told before'
grep -q 'FPGA did not assert DONE' linux.out || fail 'anything starts it'
grep -q 'Board FPGA programmed successfully' linux.out || fail 'it is not told'
grep -q 'BoardName : MESA5I20' linux.out || fail 'it is not read'
grep -q 'Region 1: I/O at' linux.out || fail 'it has no ports'

crtos up --cpus 3 --memory 256M || exit 1
# Without its ports the program is ended, as without iopl.
run=(timeout 200 crtos run --)
mesa --reset | grep -q '^status 139' || fail 'a port of Linux'
crtos device add "$card" --no-reset || exit 1
programs >realm.out
diff linux.out realm.out || fail 'Linux and the realm differ'
crtos log | tail -n 3
crtos device remove "$card" || fail remove
# What the realm has told it, it is.
run=(timeout 200)
mesa --rpo 0x1008 | grep -q '^00123456' || fail 'Linux after the realm'
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
