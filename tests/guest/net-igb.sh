#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What guest/net shows of an 82574L an 82576 does as well, which Linux drives by igb. In the full
# tier also what guest/net-shown and guest/net-abi show of that.
# tier: full
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: igb
# packages: tcpdump,arping,python3-minimal
# uses: net alike wiretap shown
# full: EVERY=yes
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
wiretap
programs=/usr/lib/crtos-tests/abi
if [ "${EVERY:-}" ]; then
	natively 300 $programs/packet
	natively 200 $programs/stamps
fi
crtos up --cpus 3 --memory 256M --device near || exit 1
crtos log | grep 'near: 82576' || fail 'it is no 82576'
linked || fail 'there is no link'
if [ "${EVERY:-}" ]; then
	alike 400 $programs/packet
	alike 200 $programs/stamps
fi
crtos down || exit 1
await '[ "$(cat /sys/class/net/near/carrier)" = 1 ]' || fail 'Linux finds no link afterwards'
[ -z "${EVERY:-}" ] || shown
exit $failed
