# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# UDP, TCP and raw packets on an interface of the realm.

# answering PROGRAM: starts tests/abi/inet.c as the peer, which answers when this returns.
answering() {
	over_there bash -c "exec -a peer $1" >peer.said &
	await 'grep -q answers peer.said'
}

# inet_alike: tests/abi/inet.c and tests/abi/raw.c natively, and in the realm.
inet_alike() {
	cd "$(mktemp -d)" || exit 1
	fail() { echo "FAILED $*"; }
	wire && peer || exit 1
	local programs=/usr/lib/crtos-tests/abi failed=0
	answering $programs/inet || exit 1
	natively 300 $programs/inet
	natively 100 $programs/raw
	crtos up --cpus 3 --memory 256M --device near || { crtos log; exit 1; }
	alike 400 $programs/inet || failed=1
	alike 100 $programs/raw || failed=1
	[ $failed = 0 ] || exit 1
	crtos down || exit 1
	alone_again
}
