# SPDX-License-Identifier: MIT OR Apache-2.0
# Arguments: PROGRAM SECONDS SKIP. Runs the program, a test of tests/abi, under Linux and in the
# realm, for so many seconds at most each. Both have to end with 0 and print the same. A program
# that ends with SKIP under Linux cannot run here.
program=$1 seconds=$2 skip=$3

# tell NAME STATUS: names the cases that failed in the run NAME, and the one that did not end.
tell() {
	local last
	echo "$1: exit status $2"
	grep -E '^(FAILED|  in a child)' "$1.out" | sed "s/^/$1: /"
	last=$(sed -n 's/^case //p' "$1.err" | tail -n 1)
	[ -z "$last" ] || grep -qE "^(ok ${last}\$|FAILED ${last}[:,])" "$1.out" ||
		echo "$1: FAILED $last: did not end"
	grep -v '^case ' "$1.err"
}

cd "$(mktemp -d)" || exit 1
timeout "$seconds" "$program" >linux.out 2>linux.err; linux=$?
[ $linux != "$skip" ] || exit "$skip"
[ $linux = 0 ] || { tell linux $linux; exit 1; }
timeout -k 5 "$seconds" crtos run -- "$program" >realm.out 2>realm.err; realm=$?
if [ $realm != 0 ] || ! cmp -s linux.out realm.out; then
	tell realm $realm
	echo 'first difference, Linux <, the realm >:'
	diff linux.out realm.out | grep '^[<>]' | sort -su -k1,1
	exit 1
fi
