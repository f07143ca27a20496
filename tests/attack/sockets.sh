#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A member of the group crtos who may have no raw sockets gets none of the realm's: neither one of
# packets nor a raw one of IP, whatever its shadow, which it has in its hands, says of its sockets,
# nor as the root of a network namespace of its own.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# uses: net member
# timeout: 300
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
forge=$PROGRAMS/forge
wire || exit 1
crtos up --cpus 3 --memory 256M --device near || exit 1
number=$(cat /sys/class/net/near/ifindex)
# The families and types: AF_PACKET, AF_INET; SOCK_RAW.
same 'a socket of UDP is none of packets' 'packets EAFNOSUPPORT' \
	"$(member crtos run -- "$forge" packets "$number")"
same 'one that is told to be of packets is none' 'packets EAFNOSUPPORT' \
	"$(member "$forge" socket 17 3 crtos run -- "$forge" packets "$number")"
same 'a socket of UDP is no raw one' 'raw no' "$(member crtos run -- "$forge" raw 10.9.0.2)"
same 'one that is told to be raw is none' 'raw no' \
	"$(member "$forge" socket 2 3 crtos run -- "$forge" raw 10.9.0.2)"
# Who makes a network namespace is root there, and has all sockets, but no interface of others.
inside() { member unshare --user --map-root-user --net crtos run -- "$forge" "$@"; }
same 'one of packets in a namespace of its own' 'wire ENODEV' "$(inside wire "$number")"
same 'one of UDP there' 'away ENETUNREACH' "$(inside away 10.9.0.2)"
same 'one of UDP outside' 'away yes' "$(member crtos run -- "$forge" away 10.9.0.2)"
crtos down --force || fail down
exit "$failed"
