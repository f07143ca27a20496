#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# While Linux slews its clock as NTP does, and takes a leap second, CLOCK_MONOTONIC in the realm
# goes back for nobody on whatever CPU.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# tier: full
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
crtos up --cpus 2,3 --memory 256M || exit 1

# adjust MODES OFFSET FREQUENCY STATUS: adjtimex(2), with a time constant of 0.
adjust() {
	python3 - "$@" <<-'END'
		import ctypes, sys
		libc = ctypes.CDLL(None, use_errno=True)
		modes, offset, frequency, status = (int(word, 0) for word in sys.argv[1:])
		# struct timex: modes, offset, freq, maxerror, esterror, status, constant, the rest.
		timex = (ctypes.c_long * 26)(modes, offset, frequency, 0, 0, status)
		libc.adjtimex(timex) >= 0 or sys.exit(f"adjtimex: {ctypes.get_errno()}")
	END
}
OFFSET=0x1 FREQUENCY=0x2 STATUS=0x10 CONSTANT=0x20
PLL=0x1 INSERT=0x10
PPM=$((1 << 16))

# steady WHAT: the program's third number is how often the clock went back.
steady() {
	local backwards
	crtos run -- "$PROGRAMS/steady" 1000 4000 3 >report || fail "$1"
	read -r _ _ _ backwards <report
	[ "$backwards" = 0 ] || fail "$1: the clock went back $backwards times"
}
steady quiet
for frequency in 500 -500; do
	adjust $((FREQUENCY | STATUS | CONSTANT)) 0 $((frequency * PPM)) $PLL || fail adjtimex
	steady "frequency $frequency"
done
for offset in 400000 -400000; do
	adjust $((OFFSET | STATUS | CONSTANT)) $offset 0 $PLL || fail adjtimex
	steady "offset $offset"
done
adjust $((OFFSET | FREQUENCY | STATUS)) 0 0 0 || fail adjtimex

# The last second of a day, and one more.
now=$(date +%s)
date -s "@$((now / 86400 * 86400 + 86400 - 3))" >/dev/null
adjust $STATUS 0 0 $INSERT || fail leap
steady 'leap second'
adjust $STATUS 0 0 0
date -s "@$((now + 5))" >/dev/null

crtos down || fail down
exit $failed
