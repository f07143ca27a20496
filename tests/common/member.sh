# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Users who have no rights but those of the group crtos, and what is found when they try more.

# Scripts exit with it.
# shellcheck disable=SC2034
failed=0
fail() { echo "FAILED $*"; failed=1; }
# same WHAT EXPECTED FOUND
same() { if [ "$3" = "$2" ]; then echo "ok $1"; else fail "$1: $3, not $2"; fi; }
# as UID COMMAND...: such a user runs it, for LIMIT seconds at most. The realm is up.
as() {
	local uid=$1
	shift
	timeout "${LIMIT:-100}" setpriv --reuid "$uid" --regid "$uid" --groups "$(stat -c %g /dev/crtos)" "$@" 2>&1
}
member() { as 12345 "$@"; }
