#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# All pages of a real-time thread's program and its libraries are present before it uses them: the
# first access to a page takes no longer than another one.
# kernels: 6.1
# icount: yes
# realm: no
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
crtos up --cpus 3 --memory 512M || exit 1
trap 'crtos down' EXIT
program=$PROGRAMS/first-touch
failed=0
"$program" >/dev/null || exit 1
# measured COMMAND...: what a program of its own measures. With a file that nobody has mapped yet,
# for pages of others are there already.
rounds=0
measured() {
	rounds=$((rounds + 1))
	cp "$program" program-$rounds && sync && sleep 1
	read -r before constants variables < <("$@" ./program-$rounds)
	echo "$*: instructions for the first access: $before; by a real-time thread: $constants, to variables $variables"
}
# An interrupt, or another CPU's turn, may come during one access. Pages that are not there are
# missing in every round.
in_some_round() {
	for _ in 1 2 3 4; do
		measured "$@"
		[ "$constants" -le 100 ] && [ "$variables" -le 100 ] && "$first" && return
	done
	return 1
}
not_there() { [ "$before" -gt 300 ]; }
there() { [ "$before" -le 100 ]; }
first=not_there
in_some_round crtos run -- || { echo 'FAILED the pages were there at first, or not for a real-time thread'; failed=1; }
first=there
in_some_round chrt -f 50 crtos run -- || { echo 'FAILED not all was there'; failed=1; }
exit $failed
