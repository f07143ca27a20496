#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A Linux that lets no page go which the realm takes back: a program that unmaps thousands of pages
# which Linux had goes on, and so do others. When Linux lets go, all memory comes back.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
pages=3000
failed=0
fail() { echo "FAILED $*"; failed=1; }

attacker || exit 1
dmesg --clear
crtos up --cpus 3 --memory 384M || exit 1
crtos run -- "$PROGRAMS/unmapper" file $pages >report || fail "with an honest Linux: status $?"
echo "with an honest Linux the longest munmap takes $(cat report) us"

attack revocations off >/dev/null || exit 1
# A half of the 1,024 places is the program's. For who has unmapped more, Linux does nothing.
timeout 300 crtos run -- "$PROGRAMS/unmapper" file $pages >report
case $? in
3) ;;
0) fail 'Linux makes calls without being told what is unmapped' ;;
124) fail 'the program hangs' ;;
*) fail 'the program fails' ;;
esac
# Others unmap and call Linux as before.
timeout 300 crtos run -- "$PROGRAMS/unmapper" file 100 >report ||
	fail "another program hangs, or its writes fail: status $?"
# One that lives while Linux comes to its senses. Its pipes are the realm's. Beside it, which has
# its share, others have theirs.
crtos run -- bash -c '
	coproc "$PROGRAMS/unmapper" file 1500 hold
	holder=$COPROC_PID
	read -r _ <&"${COPROC[0]}"
	"$PROGRAMS/unmapper" file 100 >report
	echo $? >beside
	until [ -e go ]; do sleep 0.1; done
	exec {COPROC[1]}>&-
	wait $holder
	echo $? >lost
	"$PROGRAMS/unmapper" file 1500 >report' &
await '[ -s beside ]' || fail 'a third program hangs, or one beside it'
[ "$(cat beside)" = 0 ] || fail "a program beside one that has its share: status $(cat beside)"
echo "Linux was to let go $(attack revocations on) times"
touch go
wait $! || fail "its writes fail afterwards: status $?"
[ "$(cat lost)" = 3 ] || fail "a third program: status $(cat lost)"
timeout 60 crtos down || fail down
rmmod attack
complaints | grep . && fail dmesg
exit $failed
