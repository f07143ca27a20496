#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# LinuxCNC as Debian packages it drives a card of Mesa Electronics in the realm as under Linux, by a
# periodic real-time thread (hostmot2, hm2_pci). The harness plays the card, whose connectors a
# cable joins: what the thread puts out at one comes in at the other.
# kernels: 6.12
# tier: full
# realm: no
# mesa: 5i25
# iommu: caching-mode=on
# packages: linuxcnc-uspace,pciutils
# timeout: 900
# uses: linuxcnc
set -u
cd "$(mktemp -d)" || exit 1
linuxcnc_here
failed=0
fail() { echo "FAILED $*"; failed=1; }
run=(timeout 200)
cat >card.hal <<'END'
loadrt hostmot2
loadrt hm2_pci config="num_stepgens=1 num_pwmgens=1 num_encoders=1"
loadrt threads name1=servo period1=5000000
addf hm2_5i25.0.read servo
addf hm2_5i25.0.write servo
setp hm2_5i25.0.watchdog.timeout_ns 1000000000
setp hm2_5i25.0.gpio.003.is_output 1
setp hm2_5i25.0.gpio.003.out 1
setp hm2_5i25.0.gpio.004.is_output 1
setp hm2_5i25.0.gpio.005.is_output 1
setp hm2_5i25.0.gpio.005.invert_output 1
start
loadusr -w sleep 2
show pin hm2_5i25.0.gpio.00
show pin hm2_5i25.0.gpio.02
show pin hm2_5i25.0.watchdog.has_bit
END

programs() {
	# How long a period took differs, and so do numbers of components and addresses.
	"${run[@]}" halrun -f card.hal | sed -E 's/^ *[0-9]+  bit/bit/'
	echo "status ${PIPESTATUS[0]}"
	! pidof rtapi_app || echo 'it is still there'
}

late='Unexpected realtime delay|This Message will only display once|Run the Latency Test'
card=$(lspci -Dnd 2718:5125 | cut -d' ' -f1)
[ "$card" ] || { echo 'there is no card'; exit 1; }
programs 2>&1 >linux.out | grep -vE "$late" | sed 's/ at 0x[0-9a-f]*//' >linux.err
cat linux.out linux.err
crtos up --cpus 3 --memory 512M || exit 1
crtos device add "$card" --no-reset || exit 1
run=(timeout 200 crtos run --)
programs 2>&1 >realm.out | grep -vE "$late" | sed 's/ at 0x[0-9a-f]*//' >realm.err
diff linux.out realm.out || fail 'Linux and the realm differ'
diff linux.err realm.err || fail 'complaints differ'
# Pins 3, 4 and 5 are joined with pins 20, 21 and 22; all others are pulled up.
for pin in 020:TRUE 021:FALSE 022:TRUE 023:TRUE; do
	grep -q "${pin#*:}  hm2_5i25.0.gpio.${pin%:*}.in\$" linux.out || fail "pin $pin"
done
crtos log | tail -n 5
crtos device remove "$card" || fail remove
crtos down || fail down
exit $failed
