#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A program that has more epoll sets than a list of the kernel's can have in one piece passes a file
# over a socket, which is in one of them: the realm goes on.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# uses: member
# timeout: 900
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
crtos up --cpus 3 --memory 640M || exit 1
dmesg --clear
ulimit -n 70000
same 'a file leaves' 'has them is told' \
	"$(LIMIT=600 member crtos run -- "$PROGRAMS/sets" 66000 | tr '\n' ' ' | sed 's/ $//')"
same 'a program runs' there "$(there)"
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
