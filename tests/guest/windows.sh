#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs with windows draw in the realm what they draw under Linux: Qt, GTK and OpenGL by Mesa's
# software. Their pictures are in memory that they share with the X server (MIT-SHM), which runs
# in Linux; then the server runs in the realm, and they in Linux.
# kernels: 6.12
# tier: full
# realm: no
# mem: 4G
# packages: xvfb,xdotool,faketime,qtbase5-examples,mesa-utils,libgl1-mesa-dri
# packages: gtk-3-examples,adwaita-icon-theme,fonts-dejavu-core
# timeout: 3000
# uses: realms screen
set -u
cd "$(mktemp -d)" || exit 1
export HOME=$PWD DISPLAY=:7 XDG_RUNTIME_DIR=$PWD QT_LOGGING_RULES='*=false' NO_AT_BRIDGE=1
export LIBGL_ALWAYS_SOFTWARE=1 GSETTINGS_BACKEND=memory
# The time of day stands still, and with it what moves.
export FAKETIME_DONT_FAKE_MONOTONIC=1
failed=0
fail() { echo "FAILED $*"; failed=1; }
examples=/usr/lib/x86_64-linux-gnu/qt5/examples/widgets
width=640 height=480
modprobe crtos
dmesg --clear

# Of each program.
# shellcheck disable=SC2034
patience=2400

# serve WHERE: starts the X server there.
serve() {
	rm -f Xvfb_screen0
	(on "$1" Xvfb $DISPLAY -screen 0 ${width}x${height}x24 -fbdir . -nolisten tcp -noreset) \
		2>xvfb.log &
	server=$!
	await 'xdotool getmouselocation >/dev/null 2>&1' 600 ||
		{ fail "no X server in $1"; cat xvfb.log; exit 1; }
	xdotool mousemove $((width - 1)) $((height - 1))
}

# screen: what is on it, but for the last rows, where the pointer is.
screen() { tail -c $((width * height * 4)) Xvfb_screen0 | head -c $((width * (height - 24) * 4)); }
colours() { screen | xxd -p -c 4 | sort -u | wc -l; }

# draw NAME WHERE COMMAND...: runs it, and takes a picture of the screen. How many segments of
# memory it shares with the X server goes to the file `shared`.
draw() {
	local name=$1 where=$2 program window
	shift 2
	(on "$where" faketime -f '2020-05-17 10:08:42' "$@") >"$name.log" 2>&1 &
	program=$!
	await 'xdotool search --onlyvisible --name . >windows 2>/dev/null' 1800 ||
		{ fail "$name in $where: no window: $(tail -n 3 "$name.log")"; kill $program; return; }
	window=$(tail -n 1 windows)
	# Nobody manages windows.
	for _ in {1..20}; do
		xdotool windowmove "$window" 0 0
		sleep 1
		xdotool getwindowgeometry "$window" | grep -q 'Position: 0,0 ' && break
	done
	sleep 3
	await '[ "$(colours)" -gt 20 ]' 600 || fail "$name in $where: there is no picture"
	still 60 || fail "$name in $where: the picture changes"
	grep -cE 'SYSV|memfd' /proc/"$(pidof Xvfb)"/maps >shared
	screen >picture
	kill $program
	wait $program 2>/dev/null
	await '! xdotool search --onlyvisible --name . >/dev/null 2>&1' 300
}

# The programs, by names.
declare -A programs=(
	[analogclock]="$examples/widgets/analogclock/analogclock"
	[basicdrawing]="$examples/painting/basicdrawing/basicdrawing"
	[glxgears]="glxgears -geometry 300x300+0+0"
	[gtk3-demo]="gtk3-demo --run=drawingarea"
)
serve linux
for name in "${!programs[@]}"; do
	# shellcheck disable=SC2086
	draw "$name" linux ${programs[$name]}
	mv picture "$name.picture"
	mv shared "$name.shared"
	echo "$name: $(cat "$name.shared") segments are shared"
done
crtos up --cpus 3 --memory 1G || exit 1

# alike WHERE NAMES...: draws with programs there, which has to be as under Linux.
alike() {
	local where=$1 name
	shift
	for name; do
		# shellcheck disable=SC2086
		draw "$name" "$where" ${programs[$name]}
		cmp picture "$name.picture" || fail "$name in $where draws something else"
		echo "$name in $where: $(cat shared) segments are shared"
		[ "$(cat shared)" -gt 0 ] || [ "$(cat "$name.shared")" = 0 ] ||
			fail "$name in $where: nothing is shared"
	done
}
alike realm "${!programs[@]}"
kill $server
wait $server
serve realm
alike linux "${!programs[@]}"
kill $server
wait $server
ends
exit $failed
