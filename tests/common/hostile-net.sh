# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What the network and programs do to an interface of the realm.

# attack_by_frames: floods, rings without end, kills, and a Linux that takes the card by force.
attack_by_frames() {
	cd "$(mktemp -d)" || exit 1
	failed=0
	fail() { echo "FAILED $*"; failed=1; }
	hostile=$PROGRAMS/net-hostile
	in_memory crtos "$PROGRAMS/periodic" "$PROGRAMS/net-latency" "$hostile" busybox chrt gojq ip
	wire || exit 1
	address=$(card_of near)
	crtos up --cpus 1 --memory 256M --device near || exit 1
	crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null

	listeners_begin near
	flood() { "$PROGRAMS/net-latency" far flood "${FLOOD:-0.5}"; }
	keeps_period 5000 flood || fail 'a flood takes the period away'
	# What the wire still holds is heard for a quarter of the time.
	timeout 2 crtos run -- busybox true || fail 'an ordinary program gets no time beside a flood'
	listeners_end
	rings() { crtos run -- "$hostile" near rings; }
	keeps_period 5000 rings || fail 'rings take the period away'

	# Killed with everything that a socket has.
	for _ in 1 2 3; do
		crtos run -- "$hostile" near hold >held &
		await 'grep -q holds held'
		kill -9 $!
		wait $!
	done
	crtos run -- "$hostile" near rings || fail 'memory is missing afterwards'

	# By force.
	crtos run -- "$hostile" near lose >lost &
	await 'grep -q holds lost'
	echo 1 >"$address/remove"
	wait $! || fail 'a program does not hear of the loss'
	cat lost
	echo 1 >/sys/bus/pci/rescan
	crtos log | grep -q 'near: lost' || fail 'the kernel has not lost it'
	crtos run -- "$PROGRAMS/periodic" 1000 1 >/dev/null || fail 'the realm does not go on'
	crtos down || fail down
	exit $failed
}
