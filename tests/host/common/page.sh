# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# A page of the documentation that holds word by word.

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
fail() { echo "FAILED $*"; failed=1; }

# follow PAGE OPTION...: saves the files that the page says to save, and runs its commands in a
# guest with these options, all of which have to succeed. What they print is in $dir/out.
follow() {
	local page=$1
	shift
	# A block of `sh` is a list of commands, another one is what the line before tells to save.
	awk -v dir="$dir" '
		/^```/ && file { file = ""; next }
		/^```sh$/ { file = dir "/commands"; next }
		/^```/ { file = dir "/" saved; next }
		file { print >file; next }
		/^Save this as `/ { split($0, words, "`"); saved = words[2] }' "$page"
	[ -s "$dir/commands" ] || { echo "$page: no command"; return 1; }
	./x vm --no-realm --share "$dir" --timeout 800 "$@" -- \
		'cd /mnt/share && bash -e commands' >"$dir/out" 2>&1 </dev/null
}

# finish: the end of the test, with what was printed if it has failed.
finish() {
	[ $failed = 0 ] || cat "$dir/out"
	exit $failed
}
