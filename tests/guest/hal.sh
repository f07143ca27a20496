#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# LinuxCNC's HAL is one for both realms: a machine's periodic thread runs in one, and the commands,
# the components and the streams of its operator in the other, as when both are under Linux. HAL
# is a segment of System V, with a lock that its programs spin for.
# kernels: 6.12
# more kernels: 6.1
# tier: full
# realm: no
# packages: linuxcnc-uspace
# timeout: 2400
# uses: linuxcnc realms
set -u
cd "$(mktemp -d)" || exit 1
linuxcnc_here
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe crtos
dmesg --clear

cat >machine.hal <<'END'
loadrt threads name1=servo period1=5000000
loadrt and2
loadrt sum2 count=1
loadrt streamer depth=1000 cfg=f
loadrt sampler depth=1000 cfg=f
addf and2.0 servo
addf sum2.0 servo
addf streamer.0 servo
addf sampler.0 servo
setp sum2.0.offset 1
net left => and2.0.in0
net right => and2.0.in1
net both and2.0.out
net flow streamer.0.pin.0 => sampler.0.pin.0
net go => streamer.0.enable sampler.0.enable
net question => sum2.0.in0 sum2.0.in1
net answer sum2.0.out
sets go 0
start
loadusr -w touch loaded
END
# The thread answers each question within a period or two.
cat >panel.py <<'END'
import hal, time
panel = hal.component("panel")
panel.newpin("question", hal.HAL_FLOAT, hal.HAL_OUT)
panel.newpin("answer", hal.HAL_FLOAT, hal.HAL_IN)
panel.ready()
hal.connect("panel.question", "question")
hal.connect("panel.answer", "answer")
for turn in range(1, 101):
    panel["question"] = turn
    end = time.monotonic() + 60
    while panel["answer"] != 2 * turn + 1 and time.monotonic() < end:
        time.sleep(0.001)
    if panel["answer"] != 2 * turn + 1:
        print("turn", turn, "answer", panel["answer"])
print("asked", hal.get_value("answer"))
END
seq 300 >numbers

# operate WHERE: what the operator sees and does; the thread has a few periods for each command.
operate() {
	local where=$1 left right
	hal() { (on "$where" halcmd "$@" 2>&1); }
	hal show funct | sed -E 's/^ *[0-9]+ +[0-9a-f]+ +[0-9a-f]+//'
	hal show sig
	for left in 0 1; do
		for right in 0 1; do
			hal sets left $left
			hal sets right $right
			sleep 0.3
			echo "$left $right: $(hal getp and2.0.out) $(hal gets both)"
		done
	done
	(on "$where" python3 panel.py 2>&1)
	# What one streams to the thread comes back, complete and in order.
	(on "$where" halstreamer numbers) 2>&1
	(on "$where" halsampler -n 300) >samples 2>&1 &
	await 'hal show comp | grep -q halsampler' 300 || echo 'no halsampler'
	hal sets go 1
	wait $!
	sed 's/[. 0]*$//' samples | cmp - <(sed 's/0*$//' numbers)
	hal getp sampler.0.overruns
	# A component that comes later is loaded where the thread runs.
	hal loadrt or2
	hal addf or2.0 servo
	hal setp or2.0.in1 1
	sleep 0.3
	hal getp or2.0.out
	hal show pin or2.0.in
}

# machine WHERE OPERATOR: what the operator saw, in the file seen.
machine() {
	local where=$1 operator=$2 program
	rm -f orders loaded
	mkfifo orders
	(on "$where" halrun -I -f machine.hal <orders) >machine.log 2>&1 &
	program=$!
	exec 9>orders
	# HAL's segment goes with the last program that has it, also if another one is about to
	# attach it: the operator comes when the machine has it.
	await '[ -e loaded ]' 600 || { fail "$where, $operator: not loaded"; cat machine.log; }
	operate "$operator" | grep -v '^Running with fallback_uid' | sed -E 's/^ *[0-9]+  bit/bit/' >seen
	# By this the machine itself sees what the operator did.
	echo 'show sig both' >&9
	echo exit >&9
	exec 9>&-
	wait $program || fail "machine in $where, operator in $operator: status $?"
	grep -q 'TRUE  *both' machine.log ||
		{ fail "the machine in $where sees another signal"; cat machine.log; }
	! ipcs -m | grep -q 0x48 || fail "machine in $where: a segment is left"
	! pidof rtapi_app || fail "machine in $where: it is still there"
}

machine linux linux
mv seen native
cat native
for expected in '0 1: FALSE FALSE' '1 1: TRUE TRUE' 'asked 201.0' \
	'bit   IN           TRUE  or2.0.in1'; do
	grep -qxF "$expected" native || fail "Linux alone: no $expected"
done
crtos up --cpus 3 --memory 512M || exit 1
for where in 'realm linux' 'linux realm' 'realm realm'; do
	# shellcheck disable=SC2086
	machine $where
	diff native seen || fail "$where: other than under Linux"
	echo "machine and operator: $where"
done
ends
exit $failed
