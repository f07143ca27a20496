# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# UDP and TCP on an interface of the realm.

# udp_and_tcp_alike: tests/abi/inet.c natively, and in the realm.
udp_and_tcp_alike() {
	cd "$(mktemp -d)" || exit 1
	fail() { echo "FAILED $*"; }
	wire && peer || exit 1
	program=/usr/lib/crtos-tests/abi/inet
	over_there bash -c "exec -a peer $program" &
	natively 300 $program
	crtos up --cpus 3 --memory 256M --device near || { crtos log; exit 1; }
	alike 400 $program || exit 1
	crtos down || exit 1
	alone_again
}
