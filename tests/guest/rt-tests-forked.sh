#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of rt-tests whose two sides are processes. They run in virtual time, because one side has
# 10 ms to start before the other: sigwaittest's receiver dies of a signal that comes earlier.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# icount: yes
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
crtos up --cpus 2,3 --memory 384M || exit 1
for program in pmqtest sigwaittest svsematest; do
	in_memory "$program" || exit 1
	forked=(timeout 200 "$program" -q -f -p 80 -i 1000 -l 100)
	"${forked[@]}" >linux 2>&1 && grep -q 'Max' linux || { echo "FAILED $program under Linux"; failed=1; cat linux; }
	for round in 1 2 3 4; do
		crtos run -- "${forked[@]}" >realm 2>&1 && grep -q 'Max' realm && continue
		echo "FAILED $program, round $round"
		cat realm
		failed=1
	done
done
crtos down || failed=1
exit $failed
