# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154
# Programs of the realm, and Linux, misuse a PCI function that programs drive by VFIO.

# attack_by_vfio: all of it; ends the script.
attack_by_vfio() {
	cd "$(mktemp -d)" || exit 1
	local hostile=$PROGRAMS/vfio-hostile place=/sys/bus/pci/devices/$edu
	local round before most

	failed=0
	fail() { echo "FAILED $*"; failed=1; }
	export FUNCTION=$edu
	gets() { crtos device add "$edu" --no-reset || fail "add: $1"; }
	hostile() { timeout 120 crtos run -- "$hostile" "$@" || fail "$1: status $?"; }
	# Memory that no process of the realm has.
	left() { crtos stats --json | gojq .realm.pool_free_bytes; }
	# killed WHEN: a program is killed while the function writes; another one gets its memory.
	killed() {
		crtos run -- "$hostile" transfer >out 2>err &
		program=$!
		await 'grep -q transfers out' || { fail 'it does not transfer'; cat err; }
		sleep "0.$((RANDOM % 3))$((RANDOM % 10))"
		kill -KILL $program
		wait $program 2>/dev/null
		[ "$(hostile watch "$most" | tail -n 1)" = unchanged ] || fail "$1: memory"
	}
	drives_by_vfio "$edu" || exit 1
	crtos up --cpus 3 --memory 256M || exit 1
	dmesg --clear
	gets 'at first'
	most=$(($(left) / 1048576 - 16))

	# In Linux nobody has it meanwhile.
	timeout 20 "$hostile" enter 2>err && fail 'Linux has its group as well'
	grep -q 'enter: Operation not permitted' err || { fail 'Linux'; cat err; }

	hostile reach
	hostile race
	[ "$(hostile tables)" -gt 100 ] || fail tables
	hostile tables >/dev/null
	[ "$(there)" = there ] || fail 'the realm does not run'

	# One program at a time.
	crtos run -- "$hostile" hold >out 2>err &
	program=$!
	await "crtos ps | grep -q ' vfio-hostile  *S'" || { fail 'hold does not run'; cat err; }
	timeout 60 crtos run -- "$hostile" reach 2>other && fail 'two programs have it'
	grep -q 'busy' other || { fail 'a second program'; cat other; }
	crtos device remove "$edu" 2>other && fail 'it is taken from a program'
	grep -q "open: .*$program (vfio-hostile)" other || { fail remove; cat other; }
	await 'grep -q wanted out' || fail 'the program is not told'
	# From below it.
	echo "$edu" >"$place/driver/unbind"
	wait $program || fail "hold: status $?"
	[ "$(tail -n 1 out)" = lost ] || { fail "hold: $(cat out)"; cat err; }
	[ "$(crtos device list --json)" = '[]' ] || fail 'a cell has it still'
	echo "$edu" >/sys/bus/pci/drivers_probe
	await "[ \"\$(driver $edu)\" = vfio-pci ]" || fail 'the driver does not come back'
	gets 'after it was lost'

	# The first one leaves a little behind for the next ones, and what was read of the files of
	# programs is kept. After that nothing is missing, however often it happens.
	killed 'at first'
	sleep 1
	before=$(left)
	for ((round = 0; round < ${ROUNDS:-3}; round++)); do killed "round $round"; done
	await '[ "$(left)" -ge "$before" ]' 300 || fail 'memory is missing'
	echo "memory for processes: $before bytes before, $(left) after"

	# With the realm goes all of it.
	crtos run -- "$hostile" transfer >out 2>err &
	program=$!
	await 'grep -q transfers out' || fail 'the last one does not transfer'
	crtos down --force || fail down
	wait $program 2>/dev/null
	[ "$(driver "$edu")" = vfio-pci ] || fail 'its driver is gone'
	timeout 20 "$hostile" enter || fail 'Linux does not have it back'

	# In a realm that has memory for that.
	crtos up --cpus 3 --memory 448M || fail 'up again'
	gets 'for many mappings'
	hostile many
	[ "$(there)" = there ] || fail 'the realm does not run after many mappings'
	crtos down --force || fail 'down again'
	drives_no_more "$edu"
	others_complain && fail dmesg
	exit $failed
}
