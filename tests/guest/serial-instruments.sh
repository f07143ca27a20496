#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's programs for instruments on a serial line do in the realm, on a UART that the realm has,
# what they do under Linux: minicom talks to a modem, gpsd to a receiver, sigrok to a logic
# analyser, each played at the other end of the wire.
# kernels: 6.12
# realm: no
# tier: full
# uarts: isa
# packages: jq,gpsd,gpsd-clients,minicom,sigrok-cli
# timeout: 600
# uses: analyser
set -u
cd "$(mktemp -d)" || exit 1
failed=0
line=/dev/ttyS1 other=/dev/ttyS2
run=(timeout 120)

# play COMMAND...: a player at the other end, until `silence`.
play() { stty -F $other sane raw -echo "$speed"; "$@" & player=$!; }
silence() { kill $player; wait $player 2>/dev/null; }

# A modem that answers a command of four letters.
modem() {
	head -c 5 <$other >asked
	printf 'Modem of the test\r\nOK\r\n' >$other
	sleep 60
}

# Runs minicom on a terminal of its own, and leaves it as a user does when its script has ended.
cat >terminal.py <<'PY'
import os, pty, select, sys, time
child, terminal = pty.fork()
if child == 0:
    os.environ['TERM'] = 'vt100'
    os.execvp(sys.argv[1], sys.argv[1:])
shown, asked, end = b'', False, time.monotonic() + 60
while time.monotonic() < end:
    if select.select([terminal], [], [], 0.2)[0]:
        try:
            shown += os.read(terminal, 4096)
        except OSError:
            break
    if not asked and os.path.exists('ended'):
        os.write(terminal, b'\x01x')
        asked = True
    if asked and b'Leave Minicom?' in shown:
        os.write(terminal, b'\r')
        shown = b''
print('status', os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
PY
cat >dial <<'END'
timeout 40
send "ATI3"
expect {
	"OK" break
	timeout 30 goto silent
}
! echo answered >ended
exit 0
silent:
! echo silent >ended
exit 1
END

# A receiver that tells where it is, and that it is always noon.
receiver() {
	local sentence sum index code
	while sleep 0.3; do
		for sentence in "GPGGA,120000.00,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,," \
			GPGSA,A,3,04,05,,09,12,,,24,,,,,2.5,1.3,2.1 \
			GPRMC,120000.00,A,4807.038,N,01131.000,E,022.4,084.4,230326,003.1,W; do
			sum=0
			for ((index = 0; index < ${#sentence}; index++)); do
				printf -v code %d "'${sentence:index:1}"
				((sum ^= code))
			done
			printf '$%s*%02X\r\n' $sentence $sum
		done >$other
	done
}

# sigrok LINES TEXT OPTION...: what sigrok says of the analyser, which should have that many lines,
# and that text among them. It waits for 20 ms for an answer, and takes a pause of 30 ms for the end
# of all samples; on a busy host it has to try again.
sigrok() {
	local lines=$1 text=$2 status
	shift 2
	for _ in {1..20}; do
		"${run[@]}" sigrok-cli -d ols:conn=$line "$@" >found 2>found.err
		status=$?
		[ "$(wc -l <found)" = "$lines" ] && grep -qF "$text" found && break
		sleep 0.5
	done
	grep -v '^;.* on ' found
	cat found.err
	echo "status $status"
}

programs() {
	exec 9<>$other

	echo '== minicom'
	rm -f ended shown asked
	speed=57600
	play modem
	"${run[@]}" python3 terminal.py minicom -o -D $line -b $speed -S dial -C shown
	silence
	cat ended; od -An -c asked; od -An -c shown

	echo '== gpsd'
	speed=9600
	play receiver
	"${run[@]}" gpsd -N -n $line 2>gpsd.err &
	gpsd=$!
	await 'gpspipe -w -n 4 2>/dev/null | grep -q TPV' 100
	"${run[@]}" gpspipe -w -n 30 | grep -m 1 '"mode":3' | jq -S .
	"${run[@]}" gpspipe -r -n 30 | grep -a '^\$' | sort | uniq -c | awk '{ print $2 }'
	"${run[@]}" gpsctl; echo "status $?"
	kill $gpsd
	wait $gpsd; echo "status $?"
	cat gpsd.err
	"${run[@]}" gpsctl -f -s 19200 $line; echo "status $?"
	"${run[@]}" gpsctl -f $line; echo "status $?"
	"${run[@]}" stty -F $line -a
	silence

	echo '== sigrok-cli'
	speed=115200
	play analyser $other asked
	sigrok 2 'Analyser with 8 channels' --scan
	sigrok 15 'Analyser with 8 channels' --show
	sigrok 261 'Channels (8/8)' -c samplerate=1M --samples 256 -O csv
	sigrok 5 '7:' -c samplerate=20k --samples 64 -C 0,1,7 -t 0=1 -w -O bits
	sigrok 258 '7:' -c samplerate=1M --samples 2000 -O bits | md5sum
	silence
	sort -u asked
	exec 9>&-
}

programs >linux.out 2>linux.err
crtos up --cpus 3 --memory 256M --device ttyS1 || exit 1
run=(timeout 120 crtos run --)
programs >realm.out 2>realm.err
cat realm.out realm.err
cmp -s linux.out realm.out || { echo 'FAILED: Linux and the realm differ'; diff linux.out realm.out; failed=1; }
diff linux.err realm.err >/dev/null || { echo 'FAILED: complaints differ'; diff linux.err realm.err; failed=1; }
# What counts was there at all.
for what in answered '"lat": 48.1173' 'GPRMC,120000' 'identified as' Analyser 'status 0'; do
	grep -qF "$what" linux.out || { echo "FAILED: no $what"; failed=1; }
done
crtos log | tail -n 3
crtos down || exit 1
exit $failed
