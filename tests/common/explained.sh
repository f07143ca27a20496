# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Errors with a cause, a remedy and a code, and a table of them.

# Scripts exit with it.
# shellcheck disable=SC2034
failed=0
count=0
fail() { echo "FAILED $*"; failed=1; }
# well COMMAND...: it succeeds.
well() { "$@" || fail "$*"; }
# row NAME FILE: a line of the table: what is wrong, and the message about it.
row() {
	count=$((count + 1))
	printf '| %s | %s |\n' "$1" \
		"$(tr '\n' ' ' <"$2" | sed 's/|/\\|/g; s/^crtos: //; s/  */ /g')"
}

# explained NAME CODE CAUSE COMMAND...: COMMAND fails, tells CAUSE, a remedy and CODE, and changes
# no CPU; CODE has a section. CAUSE is an extended regular expression.
explained() {
	local name=$1 code=$2 cause=$3 before got
	shift 3
	before=$(cat /sys/devices/system/cpu/online)
	"$@" >out 2>err </dev/null
	got=$?
	if [ $got = 0 ] || ! grep -qE -- "$cause" err || ! grep -q '^  remedy: ..' err ||
		! grep -qx "  more: crtos explain $code" err || ! crtos explain "$code" | grep -q '^Remedy: ' ||
		[ "$(cat /sys/devices/system/cpu/online)" != "$before" ]; then
		fail "$name: status $got, said:"
		cat err out
	fi
	row "$name" err
}

# found NAME CODE CAUSE: `crtos check` tells CAUSE, with why, a remedy and CODE.
found() {
	local name=$1 code=$2 cause=$3
	crtos check --json >check.json 2>err
	gojq -er --arg cause "$cause" --arg code "$code" '.requirements[]
		| select(.verdict != "ok" and .code == $code and .remedy != null)
		| select(.found | test($cause))
		| "\(.name): \(.found) remedy: \(.remedy) more: crtos explain \(.code)"' check.json >err || {
		fail "$name: crtos check says:"
		crtos check
	}
	row "$name" err
}
