#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# docs/tutorial.md holds word by word: its files are saved and its commands are run in a guest, each
# of which has to succeed. The motor comes to its speed in Linux and in the realm, and the panel of
# Linux sees that; no call is remote in the loop.
# timeout: 900
set -u
page=docs/tutorial.md
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
fail() { echo "FAILED $*"; failed=1; }

# A block of `sh` is a list of commands, any other one is what the line before tells to save.
awk -v dir="$dir" '
	/^```/ && file { file = ""; next }
	/^```sh$/ { file = dir "/commands"; next }
	/^```/ { file = dir "/" saved; next }
	file { print >file; next }
	/^Save this as `/ { split($0, words, "`"); saved = words[2] }' $page
for file in motor.c panel.py commands; do
	[ -s "$dir/$file" ] || { echo "$page: no $file"; exit 1; }
done
./x vm --no-realm --packages gcc,libc6-dev --share "$dir" --timeout 800 -- '
	cd /mnt/share && bash -e commands' >"$dir/out" 2>&1 </dev/null
status=$?
[ $status = 0 ] || fail "status $status"
[ "$(grep -c '^5000 cycles, 1500 rpm' "$dir/out")" = 2 ] || fail 'the motor'
[ "$(grep -c '^wanted 1500 rpm, is 1500 rpm' "$dir/out")" -ge 2 ] || fail 'the panel'
grep -q 'motor.* 50 ' "$dir/out" || fail 'ps'
# Some thousands of cycles, of which none called Linux.
calls=$(awk '/"name":"Linux: / { sum += $1 } END { print sum + 0 }' "$dir/out")
echo "$calls remote calls of a run"
[ "$calls" -gt 5 ] || fail 'the trace shows no remote call'
[ "$calls" -lt 500 ] || fail 'the loop calls Linux'
[ $failed = 0 ] || cat "$dir/out"
exit $failed
