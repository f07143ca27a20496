#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The commands of docs/migrating.md work: cyclictest in Linux and in the realm, a cell beside it.
# timeout: 900
set -u
. tests/host/common/page.sh
follow docs/migrating.md --packages rt-tests || fail "status $?"
[ "$(grep -c '^T: 0 .*C: *1000 ' "$dir/out")" = 2 ] || fail cyclictest
grep -q 'demo .*running' "$dir/out" || fail 'the cell'
finish
