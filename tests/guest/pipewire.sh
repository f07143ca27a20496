#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of JACK that are clients of PipeWire play and record between the realms: one makes a
# sound, another one records it, and PipeWire wakes both in turn, by eventfds and memory that it
# has passed to them.
# kernels: 6.12
# tier: full
# realm: no
# packages: pipewire,pipewire-bin,pipewire-jack,jackd2,python3
# timeout: 1800
# uses: realms
set -u
cd "$(mktemp -d)" || exit 1
export HOME=$PWD XDG_RUNTIME_DIR=$PWD PIPEWIRE_DEBUG=2
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe crtos
dmesg --clear

# serve WHERE
serve() {
	rm -f pipewire-0*
	(on "$1" pipewire) >pipewire.log 2>&1 &
	server=$!
	await 'pw-cli info 0 >/dev/null 2>&1' 600 || { fail "no server: $(tail pipewire.log)"; exit 1; }
}

# record PLAYER RECORDER: what is heard has to be more than silence.
record() {
	local player=$1 recorder=$2 metro
	rm -f record.wav
	(on "$player" pw-jack jack_metro --bpm 600 --duration 40) >metro.log 2>&1 &
	metro=$!
	await 'pw-jack jack_lsp 2>/dev/null | grep -q metro:' 300 ||
		fail "no player in $player: $(tail -n 5 metro.log)"
	(on "$recorder" timeout 100 pw-jack jack_rec -f record.wav -d 2 -b 16 metro:600_bpm) \
		>rec.log 2>&1 || fail "jack_rec in $recorder: $(tail -n 5 rec.log)"
	kill $metro
	wait $metro 2>/dev/null
	python3 - <<-'PY' || fail "player in $player, recorder in $recorder"
		import array, wave
		record = wave.open("record.wav")
		samples = array.array("h", record.readframes(record.getnframes()))
		loud = sum(abs(sample) > 1000 for sample in samples)
		print(len(samples), "samples,", loud, "loud")
		raise SystemExit(len(samples) < 60000 or loud < 500)
	PY
	echo "player in $player, recorder in $recorder"
}

serve linux
record linux linux
crtos up --cpus 2,3 --memory 512M || exit 1
record realm linux
record linux realm
record realm realm
kill $server
wait $server
ends
exit $failed
