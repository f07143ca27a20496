#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Messages through a lock-free ring with doorbells, between two cells and between a cell and a
# program of the realm, both ways, while one of both is killed at random and started again: each
# comes in order, and nobody waits for ever. In the full tier a million and more each time.
# kernels: 6.12
# realm: no
# shared: yes
# timeout: 3600
# uses: link
# full: COUNT=1000000 KILLS=50
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
inmate=/usr/lib/crtos/inmates/messages.elf
program=$PROGRAMS/messages
path=/dev/crtos-shm/plant
count=${COUNT:-20000} kills=${KILLS:-5}
# More than there will be.
endless=1000000000000000
RANDOM=${SEED:-7}
modprobe crtos || exit 1
dmesg --clear

# How many messages peer 1 or 2 has taken from the other one.
cat >taken.py <<'P'
import mmap, os, struct, sys
file = os.open('/dev/crtos-shm/plant', os.O_RDWR)
page, peers, common, output = 4096, 3, 65536, 16384
start = (1 + peers) * page + common + int(sys.argv[1]) * output
print(struct.unpack_from('<Q', mmap.mmap(file, output, prot=mmap.PROT_READ, offset=start), 8)[0])
P
taken() { python3 taken.py "$1"; }

# begin WHO PEER WORK OTHER, finish WHO: the realm's program, or what runs in that cell.
begin() {
	local who=$1 peer=$2 what=$3 other=$4
	if [ "$who" = realm ]; then
		crtos run -- "$program" $path "$peer" "$what" "$other" $endless >>told 2>&1 & running=$!
	else
		crtos cell start "$who" $inmate --command-line "$what=$other count=$endless" ||
			fail "start of $who"
	fi
}
finish() {
	if [ "$1" = realm ]; then
		kill -KILL $running 2>/dev/null
		wait $running 2>/dev/null
		await '[ "$(peer 1)" = 0 ]' 100 ||
			fail 'a program that was killed is still there'
	elif [ "$(state "$1")" = running ]; then
		crtos cell stop "$1" || fail "stop of $1"
	fi
}

# exchange FIRST SECOND WORK: FIRST is peer 1, and sends or receives; SECOND is peer 2. Until there
# were so many messages, and kills.
exchange() {
	local first=$1 second=$2 work=$3 done=0 still=0 last=0 now=0 other receiver=1
	[ "$work" = receive ] && other=send || { other=receive; receiver=2; }
	begin "$second" 2 $other 1
	begin "$first" 1 "$work" 2
	while now=$(taken $receiver) && [ $still -lt 100 ]; do
		[ "$now" != "$last" ] && still=0 || still=$((still + 1))
		if [ $still = 0 ] && [ "$now" -ge "$count" ] && [ $done -ge "$kills" ]; then
			break
		fi
		last=$now
		# What stands still is not helped by another start; at the end it has to go on.
		[ $still = 0 ] && [ $done -lt "$kills" ] || { sleep 0.2; continue; }
		sleep "0.$((RANDOM % 4))"
		done=$((done + 1))
		if [ $((RANDOM % 2)) = 0 ]; then
			finish "$first"
			begin "$first" 1 "$work" 2
		else
			finish "$second"
			begin "$second" 2 $other 1
		fi
	done
	echo "$first $work $second: $now messages, $done kills"
	[ $still = 0 ] || fail 'messages are lost'
	finish "$first"
	finish "$second"
}

crtos link create plant || exit 1
crtos cell create left --cpus 2 --memory 4M --link plant:1 || exit 1
crtos cell create right --cpus 3 --memory 4M --link plant:2 || exit 1
exchange left right send
crtos cell destroy left && crtos cell destroy right && crtos link destroy plant || fail destroy
for work in send receive; do
	crtos link create plant || fail create
	crtos cell create right --cpus 2 --memory 4M --link plant:2 || fail 'create right'
	crtos up --cpus 3 --memory 256M --link plant:1 || exit 1
	exchange realm right $work
	crtos cell destroy right || fail 'destroy right'
	crtos down || fail down
	crtos link destroy plant || fail 'the link stays'
done
crtos log | grep 'messages: number' && fail 'a message is not right'
[ ! -e told ] || ! grep 'not right' told || fail 'a message is not right in the realm'
complaints | grep . && fail 'Linux complains'
exit $failed
