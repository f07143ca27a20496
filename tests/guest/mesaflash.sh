#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's mesaflash reads and sets the registers of a card of Mesa Electronics by /dev/mem, and
# writes its flash memory, in the realm as under Linux. The harness plays the card.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# mesa: 5i25
# iommu: caching-mode=on
# packages: mesaflash,pciutils
# tier: full
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
run=(timeout 200)
mesa() {
	echo "mesaflash $*"
	# Which of two things it says to have verified, it has from memory that it did not set.
	"${run[@]}" mesaflash --device 5I25 "$@" 2>&1 |
		sed -E 's/Board (FLASH memory|configuration) verified/Board verified/'
	echo "status ${PIPESTATUS[0]}"
}

# A firmware for the card's FPGA, as far as mesaflash looks at it.
python3 - <<'PY'
import random, struct
def field(tag, text): return tag + struct.pack('>H', len(text) + 1) + text + b'\0'
def firmware(seed):
    data = random.Random(seed).randbytes(3000)
    return (bytes.fromhex('00090ff00ff00ff00ff0000001') + field(b'a', b'test')
        + field(b'b', b'6slx9tqg144') + field(b'c', b'2024/01/02') + field(b'd', b'03:04:05')
        + b'e' + struct.pack('>I', len(data)) + data)
open('first.bit', 'wb').write(firmware(1))
open('second.bit', 'wb').write(firmware(2))
PY

programs() {
	mesa
	mesa --verbose
	mesa --readhmid
	mesa --readhmid --dbname1 7I76
	mesa --print-pd
	# A cable joins the connectors: what goes out of P3 comes in by P2.
	mesa --wpo 0x1100=0x1ffff
	mesa --wpo 0x1000=0x15a5a
	mesa --rpo 0x1000
	mesa --rpo 0x1004
	mesa --wpo 0x1100=0
	mesa --rpo 0x1004
	mesa --write first.bit
	mesa --verify first.bit
	mesa --verify second.bit
	mesa --verify missing.bit
}
modprobe crtos
dmesg --clear
card=$(lspci -Dnd 2718:5125 | cut -d' ' -f1)
[ "$card" ] || { echo 'there is no card'; exit 1; }
# The first time it has no boot block.
mesa --fix-boot-block --write second.bit
programs >linux.out
head -n 40 linux.out
grep -q 'There are 4 of StepGen in configuration' linux.out || fail 'the card is not read'
grep -q 'verified successfully' linux.out || fail 'the flash is not written'
grep -q 'expected: 0x.* but read' linux.out || fail 'nothing is compared'

crtos up --cpus 3 --memory 256M || exit 1
crtos device add "$card" --no-reset || exit 1
# What Linux has written is there.
run=(timeout 200 crtos run --)
mesa --verify first.bit | grep -q 'verified successfully' || fail 'what Linux has written'
programs >realm.out
diff linux.out realm.out || fail 'Linux and the realm differ'
mesa --write second.bit >/dev/null
crtos log | tail -n 3
crtos device remove "$card" || fail remove
run=(timeout 200)
mesa --verify second.bit | grep -q 'verified successfully' || fail 'what the realm has written'
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
