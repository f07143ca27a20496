#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A locked cell, and a locked realm: neither root by commands nor a hostile kernel by calls of the
# hypervisor stops, fills, reclaims or destroys them; each of that works before. They end when their
# programs agree. What resets the machine is in host/locked.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# timeout: 900
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
# What the cell counts.
count() { crtos cell shared 0 --length 8 --raw | od -An -tu8 | tr -d ' '; }
counts() { local before; before=$(count); await "[ \$(count) -gt $((before + 10)) ]" || fail "$1: it does not count"; }
# nothing COMMAND WORDS: fails, and says why.
nothing() {
	local words=$1
	shift
	"$@" >out 2>err && fail "$* succeeds"
	grep -q "$words" err || { cat err; fail "$*: no reason"; }
}
MAP=3 LOAD=4 START=5 STOP=6 RECLAIM=7 DESTROY=8 LOCK=13 UNLOCK=14
BUSY=-3 DENIED=-6 LOCKED=-9
cd "$(mktemp -d)" || exit 1
attacker || exit 1
dmesg --clear
page=$(attack page)

# Not locked: all of that works.
crtos cell create victim --cpus 3 --memory 8M --port 0x92:exclusive >/dev/null || exit 1
nothing 'does not run' crtos cell lock victim
hypercall $BUSY $LOCK 0
crtos cell start victim $inmates/prober.elf --command-line 'idle-count agrees' || fail start
counts 'at first'
hypercall 0 $STOP 0
hypercall 1 $RECLAIM 0
crtos cell start victim $inmates/prober.elf --command-line 'idle-count agrees' || fail start
hypercall $DENIED $UNLOCK

# Another cell must not be able to reset the machine.
crtos cell create other --cpus 2 --memory 4M --port 0xcf0-0xcff >/dev/null || fail create
nothing 'another cell may use a port' crtos cell lock victim
crtos cell destroy other || fail destroy
# Linux reads configuration space by itself, as it does later with an exit.
configuration=$(attack pci 0)
# The first value of the watchdog.
attack outw 0x672 0x55 >/dev/null
[ "$(attack inb 0x672)" = 0x55 ] || fail 'there is no watchdog'
attack outw 0x672 4 >/dev/null
# keeps_port WHEN: Linux does not reach the port that the cell has alone, one of those that reset.
smi=$(od -An -tu4 -j48 -N4 /sys/firmware/acpi/tables/FACP | tr -d ' ')
keeps_port() {
	attack random ports 1 500 0x92 0x92 "$smi" | grep -q ' faults 0 reached' ||
		fail "Linux reaches a port of the cell $1"
}
keeps_port 'before the lock'
exits() { crtos stats --json | gojq '[.cpus[] | .exits.port] | add'; }
before=$(exits)
attack pci 0 >/dev/null
[ "$(exits)" = "$before" ] || fail 'ports exit without a locked cell'

# CPUs of Linux have left their guests so often because others called them.
calls() { crtos stats --json | gojq '[.cpus[] | select(.cpu < 3) | .exits.nmi] | add'; }
before=$(calls)
crtos cell lock victim 2>err || { cat err; fail lock; }
# No access is under way that has seen the older map of ports. The third CPU is the one that locks.
[ "$(calls)" -ge $((before + 2)) ] || fail 'not every CPU of Linux leaves its guest for the lock'
[ "$(state victim)" = locked ] || fail "its state is $(state victim)"
for call in "$MAP 0 $page" "$LOAD 0 0x200000 $page 4096" "$START 0 0x200000 0x1000 0" \
	"$STOP 0" "$RECLAIM 0" "$DESTROY 0" "$LOCK 0"; do
	# shellcheck disable=SC2086
	hypercall $LOCKED $call
done
hypercall $DENIED $UNLOCK 0
for cpu in 0 1 2; do
	[ "$(attack leave $cpu)" = $BUSY ] || fail "CPU $cpu leaves"
done
for verb in stop destroy restart 'load victim /bin/true' 'start victim /bin/true'; do
	# shellcheck disable=SC2086
	case $verb in
	*\ *) nothing locked crtos cell $verb ;;
	*) nothing locked crtos cell $verb victim ;;
	esac
done
nothing locked crtos down
nothing locked crtos down --force
rmmod crtos 2>/dev/null && fail 'the module goes'
echo 1 2>/dev/null >/sys/devices/system/cpu/cpu3/online && fail 'its CPU comes online'
for range in 0xcf9 0x64:exclusive 0x90-0x92; do
	nothing another crtos cell create other --cpus 2 --memory 4M --port $range
done
counts 'after all that'

# What would reset the machine after another step has no effect; the rest is as it was.
[ "$(attack pci 0)" = "$configuration" ] || fail "configuration space: $(attack pci 0)"
attack outb 0x64 0xd1 >/dev/null && attack outb 0x60 0xfe >/dev/null || fail 'the output port'
attack outw 0x672 0x55 >/dev/null
[ "$(attack inb 0x672)" = 0x4 ] || fail 'a write to the watchdog arrives'
# What an instruction for strings would write is not known, so it faults.
for port in 0xcf9 0x64 0x92 0x605 0x2e; do
	[ "$(attack outs $port 0)" = -14 ] || fail "a string reaches port $port"
done
keeps_port 'while it is locked'
counts 'after harmless writes'

# One more cell is as free as ever; it cannot lock the other one out.
crtos cell create other --cpus 2 --memory 4M >/dev/null || fail create
crtos cell start other $inmates/prober.elf --command-line port-write || fail start
await '[ "$(state other)" = failed ]' || fail 'it does not fail'
crtos cell destroy other || fail destroy

# Its program agrees, when it is asked.
crtos cell doorbell victim || fail doorbell
await '[ "$(state victim)" = running ]' || fail 'it does not agree'
attack pci 0 >/dev/null
before=$(exits)
attack pci 0 >/dev/null
[ "$(exits)" = "$before" ] || fail 'ports exit after the unlock'
keeps_port 'after the unlock'
crtos cell destroy victim || fail destroy

# A locked cell that breaks its bounds is one that has failed.
crtos cell create victim --cpus 3 --memory 8M >/dev/null || fail create
crtos cell start victim $inmates/prober.elf --command-line 'fill breaks' || fail start
await 'crtos log | grep -q "words were not clear"' || fail 'it does not run'
crtos cell lock victim 2>/dev/null || fail lock
crtos cell doorbell victim
await '[ "$(state victim)" = failed ]' || fail 'it does not fail'
hypercall $BUSY $LOAD 0 0x200000 "$page" 4096
hypercall $BUSY $START 0 0x200000 0x1000 0
crtos cell start victim $inmates/prober.elf --command-line fill || fail start
await '[ "$(crtos log | grep -c "0 words were not clear")" = 2 ]' || fail 'its memory was not clear'
crtos cell destroy victim || fail destroy

# A watchdog that runs would reset the machine all the same.
modprobe softdog soft_margin=600 soft_noboot=1 || fail softdog
exec 9>/dev/watchdog0
nothing 'Software Watchdog' crtos up --cpus 3 --memory 256M --locked
printf V >&9
exec 9>&-
rmmod softdog || fail 'the watchdog stays'

# The realm.
crtos up --cpus 3 --memory 256M --locked || exit 1
[ "$(state realtime)" = locked ] || fail "the realm's state is $(state realtime)"
crtos run -- busybox sleep 1000 & program=$!
await 'crtos ps | grep -qw $program' || fail 'no program'
for force in '' --force; do
	# shellcheck disable=SC2086
	nothing 'locked' crtos down $force
	grep -q "$program" err || fail 'it does not say who runs'
done
# In sleep the processors would forget the hypervisor. Without the refusal, tasks stop for 5 s.
echo freezer >/sys/power/pm_test
echo freeze 2>/dev/null >/sys/power/state && fail 'the machine sleeps'
echo none >/sys/power/pm_test
# Asked by hand, the kernel does not agree.
hypercall $LOCKED $STOP 0
for verb in stop destroy; do nothing . crtos cell $verb realtime; done
[ "$(state realtime)" = locked ] || fail "the realm's state is $(state realtime)"
[ "$(crtos run -- busybox echo there)" = there ] || fail 'no program runs'
# A signal of Linux ends nobody there, one of a program of the realm does.
crtos run -- sh -c "kill $program" || fail 'kill'
wait $program
crtos down || fail 'down of an empty realm'
[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'a CPU does not come back'

# Whenever it is killed, nothing is locked that is not a realm which works.
RANDOM=5
for i in $(seq 12); do
	crtos up --cpus 3 --memory 128M --locked >/dev/null 2>&1 & up=$!
	sleep "$(printf '0.%03d' $((RANDOM % 999)))"
	kill -KILL $up 2>/dev/null
	wait $up 2>/dev/null
	if [ "$(state realtime 2>/dev/null)" = locked ]; then
		[ "$(crtos run -- busybox echo there)" = there ] || fail "run $i: locked, and no realm"
		crtos down || fail "run $i: down"
	else
		await '[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ]' || fail "run $i: a CPU is lost"
		crtos down >/dev/null 2>&1
	fi
done

rmmod attack
# The driver of the keyboard hears the answers to what was written there.
complaints | grep -v 'atkbd serio0: Spurious' | grep . && fail dmesg
exit $failed
