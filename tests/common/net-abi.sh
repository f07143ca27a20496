# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Packet sockets on an interface of the realm.

# packets_alike: tests/abi/packet.c and tests/abi/stamps.c natively, and in the realm.
packets_alike() {
	cd "$(mktemp -d)" || exit 1
	fail() { echo "FAILED $*"; }
	wire || exit 1
	before=$(told near)
	natively 300 /usr/lib/crtos-tests/abi/packet
	natively 200 /usr/lib/crtos-tests/abi/stamps
	crtos up --cpus 3 --memory 256M --device near || { crtos log; exit 1; }
	crtos log | grep 'near: '
	[ "$(driver_of near)" = crtos ] || { fail 'Linux has it still'; exit 1; }
	alike 400 /usr/lib/crtos-tests/abi/packet || exit 1
	alike 200 /usr/lib/crtos-tests/abi/stamps || exit 1
	crtos down || exit 1
	await '[ "$(cat /sys/class/net/near/carrier)" = 1 ]'
	[ "$(told near)" = "$before" ] || { fail "afterwards $(told near), before $before"; exit 1; }
}
