#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A member of the group crtos who may have no raw sockets gets none of the realm's: neither one of
# packets nor a raw one of IP, whatever its shadow, which it has in its hands, says of its sockets.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# uses: net
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
forge=$PROGRAMS/forge
wire || exit 1
crtos up --cpus 3 --memory 256M --device near || exit 1
as_member() {
	timeout 100 setpriv --reuid 12345 --regid 12345 --groups "$(stat -c %g /dev/crtos)" "$@" 2>&1
}
# same WHAT EXPECTED COMMAND...
same() {
	local said
	said=$(as_member "${@:3}")
	if [ "$said" = "$2" ]; then echo "ok $1"; else fail "$1: $said, not $2"; fi
}
number=$(cat /sys/class/net/near/ifindex)
# The families and types: AF_PACKET, AF_INET; SOCK_RAW.
same 'a socket of UDP is none of packets' 'packets EAFNOSUPPORT' \
	crtos run -- "$forge" packets "$number"
same 'one that is told to be of packets is none' 'packets EAFNOSUPPORT' \
	"$forge" socket 17 3 crtos run -- "$forge" packets "$number"
same 'a socket of UDP is no raw one' 'raw no' crtos run -- "$forge" raw 10.9.0.2
same 'one that is told to be raw is none' 'raw no' \
	"$forge" socket 2 3 crtos run -- "$forge" raw 10.9.0.2
crtos down --force || fail down
exit $failed
