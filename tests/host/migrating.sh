#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The commands of docs/migrating.md work: cyclictest in Linux and in the realm, a cell beside it.
# timeout: 900
set -u
. tests/host/common/page.sh
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
fail() { echo "FAILED $*"; failed=1; }
follow docs/migrating.md "$dir" --packages rt-tests || fail "status $?"
[ "$(grep -c '^T: 0 .*C: *1000 ' "$dir/out")" = 2 ] || fail cyclictest
grep -q 'demo .*running' "$dir/out" || fail 'the cell'
[ $failed = 0 ] || cat "$dir/out"
exit $failed
