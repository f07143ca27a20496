# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154
# Devices that come to the realm and go while it runs.

# listed: those that cells have, of which kind, and which cell.
listed() { crtos device list --json | gojq -c 'map([.function, .kind, .cell])'; }
# heap: how many bytes of its own memory the realm's kernel uses.
heap() { crtos stats --json | gojq .realm.heap_used_bytes; }

# soon MILLISECONDS: waits for a random time below that; 999 at most.
soon() { sleep "0.$(printf '%03d' $((RANDOM % $1)))"; }
# killed MILLISECONDS COMMAND...: runs it, and kills it within that time, with what it has started.
killed() {
	local limit=$1 pid
	shift
	set -m
	"$@" >/dev/null 2>&1 &
	pid=$!
	set +m
	soon "$limit"
	kill -KILL -- -$pid 2>/dev/null
	wait $pid 2>/dev/null
}
# survives_kills COUNT MILLISECONDS DEVICE LISTED GONE PROGRAM...: so often commands are killed that
# give the realm a device and take it back, within that time each, and a program that uses it. The
# next command mends what one leaves, and nothing is missing. LISTED is what cells have meanwhile,
# GONE why the device cannot be taken back once more. The script's `is_back WHEN` tells whether
# Linux has it as before, and its `fail` what is wrong.
survives_kills() {
	# shellcheck disable=SC2034	# The condition below has one of them.
	local count=$1 limit=$2 device=$3 all=$4 gone=$5 round program at_first=0
	shift 5
	for ((round = 0; round < count; round++)); do
		killed "$limit" crtos device add "$device"
		# The next one completes it, or the first one has.
		crtos device add "$device" 2>why || grep -q 'has it already' why ||
			fail "add $round: $(cat why)"
		[ "$(listed)" = "$all" ] || fail "list $round: $(listed)"
		crtos run -- "$@" &
		program=$!
		soon 400
		pkill -KILL -x "$1"
		wait $program 2>/dev/null
		killed "$limit" crtos device remove "$device"
		await 'crtos device remove "$device" 2>why || grep -q "$gone" why' 100 ||
			fail "remove $round: $(cat why)"
		[ "$(listed)" = '[]' ] || fail "list $round: $(listed)"
		is_back "round $round"
		[ "$failed" = 0 ] || break
		[ $round != 1 ] || at_first=$(heap)
	done 2>/dev/null
	# A device has some KiB.
	await '[ $(($(heap) - at_first)) -lt 16384 ]' 100 || fail "heap: $at_first, then $(heap)"
	echo "$round rounds, the heap has $at_first bytes at first, then $(heap)"
}
