#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An oscilloscope, a program of X that draws what it receives by a serial line, draws in the realm,
# on a UART of the realm, the curve that it draws under Linux.
# kernels: 6.12
# realm: no
# tier: full
# uarts: isa
# packages: python3-tk,xvfb
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
export HOME=$PWD DISPLAY=:7
failed=0
fail() { echo "FAILED $*"; failed=1; }
line=/dev/ttyS1 other=/dev/ttyS2
run=()

cat >oscilloscope.py <<'PY'
import os, sys, tkinter, tty
WIDTH, HEIGHT = 600, 256
line = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
tty.setraw(line)
window = tkinter.Tk()
window.geometry(f'{WIDTH}x{HEIGHT}+0+0')
canvas = tkinter.Canvas(window, width=WIDTH, height=HEIGHT, background='black', highlightthickness=0)
canvas.pack()
for x in range(0, WIDTH, 50):
    canvas.create_line(x, 0, x, HEIGHT, fill='#404040')
samples = []
def sample(*_):
    for value in os.read(line, 64):
        samples.append(value)
        if len(samples) > 1:
            x = len(samples)
            canvas.create_line(x - 1, 255 - samples[-2], x, 255 - value, fill='#00ff00')
    if len(samples) >= WIDTH:
        window.deletefilehandler(line)
        window.update()
        open('drawn', 'w').close()
window.createfilehandler(line, tkinter.READABLE, sample)
window.update()
# One sample as soon as there is a window: the trigger.
os.write(line, b'T')
window.mainloop()
PY

# A triangle, then a sine, of 8 bits, to whom asks for them.
generator() {
	exec python3 -c '
import math, os, sys, tty
line = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
tty.setraw(line)
while True:
    os.read(line, 1)
    triangle = [abs(256 - x * 4 % 512) * 255 // 256 for x in range(300)]
    sine = [round(127.5 + 120 * math.sin(x / 20)) for x in range(300)]
    data = bytes(triangle + sine)
    while data:
        data = data[os.write(line, data):]
' "$1"
}
stty -F $other sane raw -echo 38400
stty -F $line sane raw -echo 38400
generator $other &
player=$!
Xvfb $DISPLAY -screen 0 640x480x24 -fbdir . -nolisten tcp -noreset 2>xvfb.log &
server=$!
await '[ -s Xvfb_screen0 ]' || exit 1

# draw NAME: runs it until its curve is complete, and takes a picture of the screen.
draw() {
	local program
	rm -f drawn
	"${run[@]}" python3 oscilloscope.py $line >"$1.log" 2>&1 &
	program=$!
	await '[ -e drawn ]' 900 || { fail "$1: nothing is drawn"; tail -3 "$1.log"; }
	sleep 2
	tail -c $((640 * 480 * 4)) Xvfb_screen0 >"$1.picture"
	kill $program
	wait $program 2>/dev/null
}
draw linux
crtos up --cpus 3 --memory 512M --device ttyS1 || exit 1
run=(crtos run --)
# The UART has settings of its own there.
crtos run -- stty -F $line sane raw -echo 38400 || fail stty
draw realm
points=$(xxd -p -c 4 <realm.picture | grep -c '^00ff00')
echo "$points points of the curve"
[ "$points" -ge 600 ] || fail 'there is no curve'
cmp linux.picture realm.picture || fail 'the realm draws another picture'
kill $player $server
crtos down || fail down
exit $failed
