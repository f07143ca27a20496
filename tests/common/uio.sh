# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154
# Unmodified programs drive a PCI function through UIO, and through the files that Linux has for its
# registers: tests/abi/uio.c and tests/abi/resource.c run under Linux, and then in the realm, which
# has the function. The script says by its header which IOMMU there is, and has common/edu.sh and
# common/alike.sh.

failed=0
fail() { echo "FAILED $*"; failed=1; }
mapfile -t cards < <(grep -lx 0x10d3 /sys/bus/pci/devices/*/device | cut -d/ -f6)
card=${cards[0]}
export FUNCTION=$edu CARD=$card USED=${cards[1]}
place=/sys/bus/pci/devices/$edu
programs=/usr/lib/crtos-tests/abi
node() { local found; found=$(ls "$place/uio") && echo "/dev/$found"; }
# How often it has interrupted.
count() {
	crtos stats --json |
		gojq --arg name "$edu" '.realm.interrupts[] | select(.device == $name) | .count'
}
# listed: what cells have.
listed() { crtos device list --json | gojq -c 'map([.function, .cell])'; }

# drive_by_uio: all of it, which ends the script.
drive_by_uio() {
	cd "$(mktemp -d)" || exit 1
	modprobe -a uio_pci_generic crtos e1000e || exit 1
	dmesg --clear
	echo uio_pci_generic >"$place/driver_override"
	echo "$edu" >/sys/bus/pci/drivers_probe
	await '[ -c "$(node 2>/dev/null)" ]' || fail 'Linux has no device'
	natively 300 $programs/uio
	echo "$card" >"/sys/bus/pci/devices/$card/driver/unbind"
	echo 1 >"/sys/bus/pci/devices/$card/enable"
	natively 100 $programs/resource
	echo 0 >"/sys/bus/pci/devices/$card/enable"
	echo "$edu" >"$place/driver/unbind"
	echo >"$place/driver_override"

	refused 'there is no device' crtos up --cpus 3 --memory 256M --device 1234:5678
	refused 'cannot be reset' crtos up --cpus 3 --memory 256M --device "$edu"
	[ -e "$place/driver" ] && fail 'a realm that did not start has a function'
	crtos up --cpus 3 --memory 256M --device "$edu" --no-reset || exit 1
	refused "it is Linux's console" crtos device add ttyS0
	[ "$(listed)" = "[[\"$edu\",\"realtime\"]]" ] || fail "list: $(crtos device list)"
	await '[ -c "$(node 2>/dev/null)" ]' || fail 'there is no device'
	await '[ "$(count)" = 0 ]' 100 || fail "stats: $(crtos stats)"
	alike 400 $programs/uio
	crtos stats | grep -A1 '^DEVICE'
	await '[ "$(count)" -ge 60 ]' 100 || fail "stats: $(count) interrupts"
	crtos trace -o trace.json crtos run -- $programs/uio each_interrupt_counts >/dev/null ||
		fail trace
	traced=$(gojq --arg name "interrupt of $edu" \
		'[.traceEvents[] | select(.name == $name)] | length' trace.json)
	[ "$traced" = 51 ] || fail "trace: $traced interrupts"
	crtos device add "$card" || fail 'the card'
	alike 100 $programs/resource

	# Tools of Linux find the registers, and read configuration space. What they write there is
	# lost.
	register=$(printf '%#x' $(($(cut -d' ' -f1 "$place/resource" | head -n 1) + 4)))
	crtos run -- busybox devmem "$register" 32 0x12345678 || fail 'devmem writes'
	[ "$(crtos run -- busybox devmem "$register")" = 0xEDCBA987 ] || fail 'devmem reads'
	lspci -vxxxx -s "$edu" >linux.out || fail 'lspci'
	crtos run -- lspci -vxxxx -s "$edu" >realm.out || fail 'lspci in the realm'
	cat realm.out
	grep -q 'driver in use: crtos' realm.out || fail 'lspci does not name the driver'
	cmp linux.out realm.out || fail 'lspci'
	crtos run -- setpci -s "$edu" COMMAND=0 BASE_ADDRESS_0=0 || fail setpci
	lspci -vxxxx -s "$edu" | cmp - linux.out || fail 'setpci has written'
	refused 'Operation not permitted' crtos run -- busybox devmem "$(printf '%#x' $((16 << 20)))"

	crtos device remove "$edu" || fail remove
	[ -e "$place/uio" ] && fail 'it is shown still'
	[ "$(listed)" = "[[\"$card\",\"realtime\"]]" ] || fail "list: $(crtos device list)"

	# One that interrupts by a table in its memory.
	place=/sys/bus/pci/devices/$card
	await '[ -c "$(node 2>/dev/null)" ]' || fail 'there is no card'
	[ "$(timeout 60 crtos run -- "$PROGRAMS/uio-e1000e" "$(node)")" = 10 ] || fail 'messages of a table'
	crtos down || fail down
	rmmod e1000e
	complaints | grep . && fail dmesg
	exit $failed
}
