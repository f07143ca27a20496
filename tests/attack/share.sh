#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux gives the running realm pages to share: none that is a cell's, the hypervisor's or a
# device's, none but in the share window, no two at one place. What the realm has there Linux can
# neither take away nor give to a cell as its own. The realm goes on, and gives all back at its end.
# kernels: 6.12
# more kernels: 6.1
# realm: no
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
# got NAME EXPECTED [NTH]
got() {
	local found
	found=$(tr ' ' '\n' <<<"$result" | grep -A 1 -x "$1" | sed -n "$((3 * ${3:-1} - 1))p")
	if [ "$found" = "$2" ]; then echo "ok $1: $found"; else fail "$1: $found, not $2"; fi
}

attacker || exit 1
crtos up --cpus 3 --memory 64M || exit 1
dmesg --clear
cell=$(crtos cell list --json | gojq -r '.[] | select(.name == "realtime") | .cell')
# Not on the CPU that a cell is to get: nobody gives the one that makes the call.
taskset -pc 0 $$ >/dev/null
result=$(attack share "$cell" 2)
read -r tried shared _ <<<"$result"
echo "$tried pages that are not Linux's, $shared shared"
[ "${tried:-0}" -ge 1024 ] || fail "$tried pages are hidden"
[ "$shared" = 0 ] || fail "$shared pages that are not Linux's are shared"
got elsewhere -3
got block -3
got first 0
got again -1
got held 1
got taken -6
got private -5
got held 1 2
crtos run -- busybox true || fail 'the realm does not go on'
crtos down || fail 'the realm does not end'
complaints | grep . && fail 'Linux complains'
exit $failed
