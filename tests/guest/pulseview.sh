#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# PulseView, an application of X, shows in the realm what it shows under Linux: the signals that a
# logic analyser sends by a UART of the realm. It is played at the other end of the wire.
# kernels: 6.12
# tier: full
# realm: no
# uarts: isa
# packages: pulseview,xdotool,xvfb
# timeout: 1500
# uses: analyser screen
set -u
cd "$(mktemp -d)" || exit 1
export HOME=$PWD DISPLAY=:7 XDG_RUNTIME_DIR=$PWD QT_LOGGING_RULES='*=false'
failed=0
fail() { echo "FAILED $*"; failed=1; }
line=/dev/ttyS1 other=/dev/ttyS2
run=()

exec 9<>$other
stty -F $other sane raw -echo 115200
analyser $other asked &
player=$!
Xvfb $DISPLAY -screen 0 800x600x24 -fbdir . -nolisten tcp -noreset 2>xvfb.log &
server=$!
await '[ -s Xvfb_screen0 ]' || exit 1

windows() { xdotool search --onlyvisible --name 'PulseView' 2>/dev/null; }
# How often the analyser was told to begin.
begun() { grep -c '^01' asked; }

# record NAME: starts PulseView and has it record as often as it takes, until the picture is
# `wanted`, or, if that is empty, one that came before. It takes a pause of 30 ms for the end of the
# samples, and a busy host makes such pauses.
record() {
	local name=$1 window before pictures=$PWD/pictures-$1
	mkdir "$pictures"
	for _ in 1 2 3 4 5; do
		"${run[@]}" pulseview -c -d ols:conn=$line >$name.log 2>&1 &
		program=$!
		await 'windows >/dev/null' 1200 || return 1
		window=$(windows | head -n 1)
		# Nobody manages windows: it gets no focus by itself, and may not be done with its
		# size.
		for _ in {1..20}; do
			xdotool windowmove "$window" 0 0 windowsize "$window" 800 600 \
				windowfocus "$window"
			sleep 3
			xdotool getwindowgeometry "$window" | tr '\n' ' ' |
				grep -q 'Position: 0,0 .*Geometry: 800x600' && break
		done
		# Away from fields with a cursor that blinks.
		xdotool mousemove 400 560 click 1 mousemove 799 599
		still 100 || return 1
		# It asks for an answer within 20 ms, and has no device if that came late.
		grep -q '^04' asked && break
		kill -KILL $program
		wait $program 2>/dev/null
	done
	for _ in {1..12}; do
		# shellcheck disable=SC2034
		before=$(begun)
		xdotool key --window "$window" space
		await '[ "$(begun)" -gt "$before" ]' 100
		sleep 3
		still 100 || return 1
		cp Xvfb_screen0 $name.xwd
		picture=$(md5sum <$name.xwd)
		if [ -n "$wanted" ]; then
			[ "$picture" = "$wanted" ] && break
		else
			[ -e "$pictures/${picture%% *}" ] && break
		fi
		: >"$pictures/${picture%% *}"
		picture=
	done
	kill -KILL $program
	wait $program 2>/dev/null
	[ -n "$picture" ]
}

wanted=
record linux || fail 'Linux shows something else each time'
wanted=$picture
echo "Linux: $(ls pictures-linux | wc -l) pictures"
# The curves are there: many colours, of which some are rare.
colours=$(tail -c $((800 * 600 * 4)) linux.xwd | xxd -p -c 4 | sort | uniq -c | wc -l)
echo "$colours colours"
[ "$colours" -gt 50 ] || fail 'there is no picture'
: >asked
crtos up --cpus 3 --memory 768M --device ttyS1 || exit 1
run=(crtos run --)
record realm || fail 'the realm shows something else'
echo "realm: $(ls pictures-realm | wc -l) other pictures"
cmp linux.xwd realm.xwd || failed=1
head -n 5 realm.log
crtos log | tail -n 3
exec 9>&-
kill $player $server
crtos down || failed=1
exit $failed
