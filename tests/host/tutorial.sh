#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# docs/tutorial.md holds word by word. The motor comes to its speed in Linux and in the realm, and
# the panel in Linux sees that; the loop makes no remote call.
# tier: full
# timeout: 900
set -u
. tests/host/common/page.sh
follow docs/tutorial.md || fail "status $?"
[ "$(grep -c '^10000 cycles, 1500 rpm' "$dir/out")" = 2 ] || fail 'the motor'
[ "$(grep -c '^wanted 1500 rpm, is 1500 rpm' "$dir/out")" -ge 2 ] || fail 'the panel'
grep -q 'motor.* 50 ' "$dir/out" || fail 'ps'
calls=$(awk '/"name":"Linux: / { sum += $1 } END { print sum + 0 }' "$dir/out")
echo "$calls remote calls in a run of 2000 cycles"
[ "$calls" -gt 5 ] || fail 'the trace shows no remote call'
[ "$calls" -lt 500 ] || fail 'the loop calls Linux'
finish
