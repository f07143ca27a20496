#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# LinuxCNC as Debian packages it drives a parallel port in the realm, which has its I/O ports alone,
# as it does under Linux, by a periodic real-time thread.
# kernels: 6.12
# tier: full
# realm: no
# parallel: yes
# packages: linuxcnc-uspace
# timeout: 900
# uses: linuxcnc
set -u
cd "$(mktemp -d)" || exit 1
linuxcnc_here
failed=0
run=(timeout 120)
cat >port.hal <<'END'
loadrt hal_parport cfg="0x378 out"
loadrt threads name1=servo period1=1000000
loadrt and2
addf parport.0.read servo
addf and2.0 servo
addf parport.0.write servo
setp and2.0.in0 1
setp and2.0.in1 1
net both and2.0.out => parport.0.pin-04-out
setp parport.0.pin-02-out 1
setp parport.0.pin-09-out-invert 1
setp parport.0.pin-17-out 1
start
loadusr -w sleep 1
show pin parport.0.pin
show sig
show thread
END
register() { "${run[@]}" dd if=/dev/port bs=1 skip=$(($1)) count=1 status=none | xxd -p; }

programs() {
	"${run[@]}" python3 - <<-'PY'
		import os
		file = os.open('/dev/port', os.O_RDWR)
		os.pwrite(file, b'\x00', 0x378)
		os.pwrite(file, b'\x0c', 0x37a)
	PY
	# How long a period took differs, and so do numbers of components.
	"${run[@]}" halrun -f port.hal | sed -E '/servo/s/\(.*//; s/^ *[0-9]+  bit/bit/'
	echo "status ${PIPESTATUS[0]}"
	register 0x378
	register 0x37a
	! pidof rtapi_app || echo 'it is still there'
}

# What it says once if a period was late.
late='Unexpected realtime delay|This Message will only display once|Run the Latency Test'
programs 2>&1 >linux.out | grep -vE "$late" >linux.err
crtos up --cpus 3 --memory 512M --port 0x378-0x37f:exclusive || exit 1
run=(timeout 120 crtos run --)
programs 2>&1 >realm.out | grep -vE "$late" >realm.err
cat realm.out realm.err
diff linux.out realm.out || { echo 'FAILED: Linux and the realm differ'; failed=1; }
diff linux.err realm.err || { echo 'FAILED: complaints differ'; failed=1; }
# Pins 2, 4 and 9 are data 0, 2 and 7.
grep -qx 85 linux.out || { echo 'FAILED: it does not drive the port'; failed=1; }
crtos log | tail -n 5
crtos down || exit 1
exit $failed
