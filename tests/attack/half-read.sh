#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A member of the group crtos kills a program of theirs while Linux reads a file for it. Others that
# map the file find all of it, and no zeros in place of what was not read.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# tier: full
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
crtos up --cpus 3 --memory 512M || exit 1
member="setpriv --reuid 12345 --regid 12345 --groups $(stat -c %g /dev/crtos)"
sum() { "$@" "$PROGRAMS/mapped-sum" "$file" | tail -n 1; }
mkfifo ready silence
exec 4<>silence

# Files that nobody has executed in the realm, in a file system that does not lie in memory.
killed=0
RANDOM=7
files=$(find /usr/lib /usr/bin -xdev -type f -size +1400k -size -4096k | sort | head -n 24)
for file in $files; do
	echo 3 >/proc/sys/vm/drop_caches
	$member crtos run -- "$PROGRAMS/mapped-sum" "$file" >ready & program=$!
	exec 3<ready
	read -r _ <&3
	# sleep(1) would take too long to start.
	read -r -t "$(printf '0.%04d' $((RANDOM % 60)))" _ <&4
	kill -KILL $program 2>/dev/null
	# It says its sum, or nothing.
	[ -n "$(cat <&3)" ] || killed=$((killed + 1))
	exec 3<&-
	wait $program 2>/dev/null
	expected=$(sum) found=$(sum crtos run --)
	if [ "$found" = "$expected" ]; then
		echo "ok $file"
	else
		echo "FAILED $file: $found, not $expected"; failed=1
	fi
done
echo "$killed killed before they had read all"
[ $killed -gt 3 ] || { echo 'too few'; failed=1; }
crtos down || failed=1
exit $failed
