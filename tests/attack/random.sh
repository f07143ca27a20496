#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A hostile Linux that tries everything: calls into the hypervisor, registers, ports, and words of
# the channel, at random. They end in errors for their author; the realm and Linux go on. The seed
# comes with each failure, and `SEED=N` has it again.
#
# What harms nobody but Linux, or what root may do, is left out. Calls: stopping the realm and
# naming it another doorbell; the others leave it alone or are refused. Memory, ports and CPUs that
# cells get are such that Linux does not miss. Registers: writes to those that Linux may write.
# Ports: only those are written that a cell has alone, and that of system-management interrupts.
# Words: all but the clock's page, the kernel's state, and the slots of the program that goes on.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# timeout: 2400
# full: COUNT=2500000
set -u
cd "$(mktemp -d)" || exit 1
chmod 755 .
count=${COUNT:-40000}
seed=${SEED:-$(date +%s)}
cpus=/sys/devices/system/cpu
failed=0
fail() { echo "FAILED $* (seed $seed)"; failed=1; }
smi=$(od -An -tu4 -j48 -N4 /sys/firmware/acpi/tables/FACP | tr -d ' ')
member() { setpriv --reuid 12345 --regid 12345 --groups "$(stat -c %g /dev/crtos)" "$@"; }
# at_random WHAT COUNT ARGUMENTS...: in pieces, each with a seed of its own. What each piece says is
# in `said`.
at_random() {
	local what=$1 left=$2 piece begun=$SECONDS
	shift 2
	: >said
	while [ "$left" -gt 0 ]; do
		piece=$((left < 50000 ? left : 50000))
		if ! attack random "$what" "$seed" "$piece" "$@" >>said; then
			fail "$what: the attack does not end well"
			break
		fi
		seed=$((seed + 1)) left=$((left - piece))
	done
	awk -v what="$what" '
		{ for (i = 1; i < NF; i += 2) { sum[$(i + 1)] += $i; name[i] = $(i + 1) } }
		END {
			printf "%s:", what
			for (i = 1; i in name; i += 2) printf " %d %s", sum[name[i]], name[i]
			print ""
		}' said
	echo "$what: $((SECONDS - begun)) s"
	goes_on $program "$what"
}
# sums WORD: how many of that
sums() {
	awk -v word="$1" '{ for (i = 1; i < NF; i++) if ($(i + 1) == word) sum += $i }
		END { print sum + 0 }' said
}

attacker || exit 1
echo "seed $seed, $count of each"
crtos up --cpus 3 --memory 384M || exit 1
dmesg --clear
crtos run -- "$PROGRAMS/periodic" 1000 1000000 >ticks &
program=$!
await 'crtos ps | grep -qw $program' || fail 'no program'
sleep 1

at_random registers "$count"
[ "$(sums breaches)" = 0 ] || { grep -v ' 0 breaches' said; fail 'Linux changes registers'; }

crtos cell create owner --cpus 2 --memory 4M --port 0x300-0x30f:exclusive >/dev/null || fail create
at_random ports "$count" 0x300 0x30f "$smi"
[ "$(sums reached)" = 0 ] || fail 'Linux reaches a port that a cell has alone'
crtos cell destroy owner || fail destroy

echo 0 >$cpus/cpu2/online || fail 'CPU 2 offline'
at_random hypercalls "$count" 0 2
[ "$(sums wrong)" = 0 ] || fail 'a call answers what it does not'
echo 1 >$cpus/cpu2/online || fail 'CPU 2 does not come back'
[ "$(taskset -c 2 echo there)" = there ] || fail 'nothing runs on CPU 2'
timeout 60 crtos run -- busybox true || fail 'no program starts after these'

# Programs that call Linux without end: the words are theirs. A member's, so that what they have
# Linux do has no rights.
for _ in 1 2; do
	while :; do
		member timeout -s KILL 10 crtos run -- busybox sh -c \
			'while :; do busybox date >/dev/null; done' >/dev/null 2>&1
	done &
	callers+=($!)
done
sleep 2
at_random words "$count" "$program" 50
[ "$(sums written)" -gt $((count / 2)) ] || fail 'few words were written'
kill "${callers[@]}"
goes_on $program words

kill -TERM $program
wait $program || fail 'the program fails'
read -r wakeups _ <ticks
echo "$wakeups wake-ups"
[ "${wakeups:-0}" -gt 100 ] || fail 'the program did not wake'
crtos log | grep -i 'died\|panic' && fail 'something died'
rmmod attack
crtos down --force || fail down
[ "$(cat $cpus/online)" = 0-3 ] || fail 'CPUs online'
complaints | grep . && fail dmesg
exit $failed
