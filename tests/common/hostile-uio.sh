# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154
# Programs of the realm misuse a PCI function that they drive, and Linux takes it away from below
# them: the realm goes on, and a program loses what it had by a signal. The script says by its
# header which IOMMU there is, and has common/edu.sh and common/space.sh.

failed=0
fail() { echo "FAILED $*"; failed=1; }
place=/sys/bus/pci/devices/$edu
node() { local found; found=$(ls "$place/uio") && echo "/dev/$found"; }
gets() {
	crtos device add "$edu" --no-reset || { fail "add: $1"; return 1; }
	await '[ -c "$(node 2>/dev/null)" ]' || fail "no device: $1"
	device=$(node)
}
# takes_it WHAT: starts the hostile program, which runs.
takes_it() {
	crtos run -- "$PROGRAMS/uio-hostile" "$device" "$1" >out 2>err &
	program=$!
	await "crtos ps | grep -q ' uio-hostile  *S'" || { fail "$1 does not run"; cat err; }
}
# ends_lost WHAT: that program has lost the function, and nothing else has happened.
ends_lost() {
	wait $program || fail "$1: status $?"
	[ "$(cat out)" = lost ] || { fail "$1: $(cat out)"; cat err; }
	[ "$(there)" = there ] || fail "$1: the realm does not run"
}
space() { od -An -tx4 -v -N 64 "$place/config"; }
goes() { echo 1 >"$place/remove"; }
comes() { echo 1 >/sys/bus/pci/rescan; await '[ -e "$place" ]' || fail 'it does not come back'; }

# attack_by_uio: all of it, which ends the script.
attack_by_uio() {
	local before round
	cd "$(mktemp -d)" || exit 1
	modprobe crtos || exit 1
	crtos up --cpus 3 --memory 256M || exit 1
	dmesg --clear
	gets 'at first' || exit 1

	# What programs have stays theirs as long as Linux keeps to its own rules.
	takes_it hold
	refused "open: .*$program (uio-hostile)" crtos device remove "$edu"
	refused 'busy' cat "$device"
	# shellcheck disable=SC2016
	refused 'busy' bash -c 'exec 3<>"$0"' "$device"
	[ -e /sys/bus/pci/drivers/crtos/unbind ] && fail 'the driver can be unbound'
	echo uio_pci_generic >"$place/driver_override"
	echo "$edu" >/sys/bus/pci/drivers_probe 2>/dev/null
	[ "$(basename "$(readlink "$place/driver")")" = crtos ] || fail 'another driver has it'
	echo >"$place/driver_override"
	[ -e "$place/reset" ] && echo 1 >"$place/reset" 2>/dev/null
	# Its memory and its decoding of addresses are not Linux's to change.
	before=$(space)
	put "$place" 4 2 0
	put "$place" 0x10 4 0
	[ "$(space)" = "$before" ] || { fail 'Linux changes it'; diff <(echo "$before") <(space); }
	rmmod crtos 2>/dev/null && fail 'the module is gone'
	[ -d /proc/$program ] || fail 'the program has ended'
	# From below it.
	goes
	ends_lost 'hold'
	comes
	gets 'after it was lost'

	# A map without the file counts as well.
	takes_it mapped
	refused 'uio-hostile' crtos device remove "$edu"
	goes
	ends_lost 'mapped'
	comes
	gets 'once more'

	# By Linux's file for its memory.
	device=$place/resource0
	takes_it mapped
	refused 'uio-hostile' crtos device remove "$edu"
	goes
	ends_lost 'by resource0'
	comes
	gets 'after resource0'

	# It copies nothing of the realm's, nor over it.
	crtos run -- "$PROGRAMS/uio-hostile" "$device" copy || fail copy
	[ "$(there)" = there ] || fail 'the realm does not run after copies'
	crtos run -- "$PROGRAMS/uio-hostile" "$device" storm || fail storm
	crtos log | grep -q "$edu interrupts too often" || fail 'it is not silenced'
	# Whoever opens it next hears it again.
	crtos run -- "$PROGRAMS/uio-hostile" "$device" storm >/dev/null || fail 'storm once more'
	crtos device remove "$edu" || fail 'remove: nobody has it'

	# Tools and programs that are killed at any moment leave nothing behind.
	before=$(space)
	for ((round = 0; round < ${ROUNDS:-6}; round++)); do
		crtos device add "$edu" --no-reset &
		sleep "0.0$((RANDOM % 10))"
		kill -KILL $! 2>/dev/null
		wait $! 2>/dev/null
		if [ "$(crtos device list --json)" = '[]' ]; then
			[ -e "$place/driver" ] && fail "round $round: bound"
			[ -e "$place/uio" ] && fail "round $round: shown"
			continue
		fi
		await '[ -c "$(node 2>/dev/null)" ]' || fail "round $round: not shown"
		device=$(node)
		takes_it mapped
		sleep "0.0$((RANDOM % 10))"
		kill -KILL $program
		wait $program 2>/dev/null
		await 'crtos device remove "$edu" 2>err' 600 || { fail "round $round: remove"; cat err; }
		[ "$(space)" = "$before" ] || fail "round $round: it has changed"
	done

	# With the realm goes all of it.
	gets 'before down'
	takes_it hold
	crtos down --force || fail down
	wait $program 2>/dev/null
	[ -e "$place/uio" ] && fail 'it is shown after down'
	[ "$(space)" = "$before" ] || fail 'it has changed after down'
	# QEMU's IOMMU of AMD's kind tells Linux of the function's faults, though it is told not to.
	complaints | grep -v -e "crtos $edu: AMD-Vi: Event logged" \
		-e 'amd_iommu_report_page_fault: .* callbacks suppressed' | grep . && fail dmesg
	exit $failed
}
