# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Exits of a CPU of the realm while one of its programs measures.

# exits CPU: between which moments they were counted, and how many of each kind there are so far.
exits() {
	local before after count
	read -r before _ </proc/uptime
	count=$(crtos stats --json | gojq -c --argjson cpu "$1" '.cpus[] | select(.cpu == $cpu) | .exits')
	read -r after _ </proc/uptime
	echo "${before/./}0000000 ${after/./}0000000 $count"
}

# no_exits CPU COMMAND...: runs a command whose last two words of output say when it began and
# ended to measure (CLOCK_MONOTONIC, in nanoseconds), and which rests for seconds before and behind.
# The script's `fail` is told if the CPU exited in between.
no_exits() {
	local cpu=$1 child start end before after
	shift
	"$@" >measured &
	child=$!
	while [ -d /proc/$child ]; do exits "$cpu"; sleep 0.2; done >counted
	wait $child || fail 'nothing measured while exits were counted'
	read -r start end < <(awk '{ print $(NF - 1), $NF }' measured)
	# The last count before, and the first behind.
	read -r before after < <(awk -v start="$start" -v end="$end" '
		$2 + 10000000 < start { before = $3 }
		$1 > end + 10000000 && !after { after = $3 }
		END { print before, after }' counted)
	if [ -z "$before" ] || [ -z "$after" ]; then
		fail "no counts around $start to $end"
		cat counted
	else
		[ "$before" = "$after" ] || fail "exits: $before, then $after"
	fi
}
