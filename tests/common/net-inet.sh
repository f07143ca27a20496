# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# UDP and TCP on an interface of the realm.

# answering PROGRAM: starts tests/abi/inet.c as the peer, which answers when this returns.
answering() {
	over_there bash -c "exec -a peer $1" >peer.said &
	await 'grep -q answers peer.said'
}

# udp_and_tcp_alike: tests/abi/inet.c natively, and in the realm.
udp_and_tcp_alike() {
	cd "$(mktemp -d)" || exit 1
	fail() { echo "FAILED $*"; }
	wire && peer || exit 1
	program=/usr/lib/crtos-tests/abi/inet
	answering $program || exit 1
	natively 300 $program
	crtos up --cpus 3 --memory 256M --device near || { crtos log; exit 1; }
	alike 400 $program || exit 1
	crtos down || exit 1
	alone_again
}
