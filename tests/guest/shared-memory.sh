#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# One memory for programs of the realm and of Linux: files of tmpfs, memfds, segments of System V.
# What one stores the other one sees at once, and both count and send messages there. What is cut
# or punched is gone for both. Nothing stays pinned, also after either was killed.
# kernels: 6.12
# more kernels: 6.1 6.1-rt 6.12-rt
# realm: no
# shared: yes
# full: ROUNDS=100
# timeout: 3000
set -u
rounds=${ROUNDS:-2}
RANDOM=${SEED:-1}
modprobe crtos	# Linux warns of modules that are not its own
dmesg --clear

# half WHERE ROLE KIND NAME: one half, in place of the shell.
half() {
	local where=$1 role=$2; shift 2
	if [ "$where" = realm ]; then exec crtos run -- "$PROGRAMS/halves" "$@" "$role"
	else exec "$PROGRAMS/halves" "$@" "$role"; fi
}

clean() { rm -f /dev/shm/halves /tmp/halves-memfd; ipcrm -M 4711 2>/dev/null; }
name() {
	case $1 in
	file) echo /dev/shm/halves ;;
	memfd) echo /tmp/halves-memfd ;;
	sysv) echo 4711 ;;
	esac
}

# both KIND WHERE0 WHERE1: both halves; what they print goes to /tmp/half.0 and /tmp/half.1.
both() {
	local kind=$1 name
	name=$(name "$kind")
	clean
	half "$2" 0 "$kind" "$name" >/tmp/half.0 2>&1 &
	(half "$3" 1 "$kind" "$name") >/tmp/half.1 2>&1
	local second=$?
	wait $!
	local first=$?
	clean
	[ $first = 0 ] && [ $second = 0 ]
}

# How many pages are pinned in Linux.
pins() {
	awk '$1 == "nr_foll_pin_acquired" { pins += $2 }
		$1 == "nr_foll_pin_released" { pins -= $2 }
		END { print pins }' /proc/vmstat
}

# messages_by KIND: how many both exchange: a million of one kind with --full.
messages_by() {
	case $rounds:$1 in
	100:file) echo 1000000 ;;
	100:*) echo 100000 ;;
	*) echo 5000 ;;
	esac
}
for kind in file memfd sysv; do
	MESSAGES=$(messages_by $kind)
	export MESSAGES
	both $kind linux linux || { echo "$kind under Linux:"; cat /tmp/half.*; exit 1; }
	cp /tmp/half.0 "/tmp/native.$kind"
	cmp /tmp/half.1 "/tmp/native.$kind" || exit 1
done
crtos up --cpus 3 --memory 256M || exit 1
before=$(pins)
for kind in file memfd sysv; do
	MESSAGES=$(messages_by $kind)
	for where in "realm linux" "linux realm" "realm realm"; do
		# All pairs of all kinds with --full.
		[ "$rounds" = 100 ] || [ $kind = file ] || [ "$where" = 'realm linux' ] || continue
		# shellcheck disable=SC2086
		both $kind $where || { echo "$kind, $where:"; cat /tmp/half.*; exit 1; }
		for role in 0 1; do
			diff "/tmp/half.$role" "/tmp/native.$kind" ||
				{ echo "$kind, $where: role $role prints something else"; exit 1; }
		done
	done
done
cat "/tmp/native.file"
await "[ \"\$(pins)\" = $before ]" || { echo "pinned: $(pins), were $before"; exit 1; }

# Either is killed at any time, the other one a little later.
MESSAGES=10000000
for round in $(seq "$rounds"); do
	kind=$(shuf -n 1 -e file memfd sysv --random-source=<(yes "$RANDOM"))
	clean
	half realm 0 "$kind" "$(name "$kind")" >/dev/null 2>&1 & first=$!
	half linux 1 "$kind" "$(name "$kind")" >/dev/null 2>&1 & second=$!
	sleep "0.$(printf '%03d' $((RANDOM % 900)))"
	if [ $((round % 2)) = 0 ]; then kill -9 $first; else kill -9 $second; fi
	sleep 0.1
	kill -9 $first $second
	wait $first $second
done 2>/dev/null
clean
await "[ \"\$(pins)\" = $before ]" || { echo "pinned: $(pins), were $before"; exit 1; }
echo "$rounds rounds, nothing is pinned"
crtos run -- busybox true || exit 1
crtos down || exit 1
! complaints | grep .
