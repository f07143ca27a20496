# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154
# Programs of a member that have the kernel keep as much as it does. After common/member.sh.

ulimit -n 60064
# hostiles HOW WHAT CHILDREN: so many programs have all that they get of that kind, in a file of the
# name told. They then come to an end, or are killed, as HOW says.
hostiles() {
	local how=$1 input member status=0
	shift
	rm -f in told
	mkfifo in
	sleep 1000 >in & input=$!
	LIMIT=600 member crtos run -- "$PROGRAMS/heap-hostile" "$@" <in >told & member=$!
	await 'grep -q "[.]$" told' 5000 || status=1
	cat told
	[ "$how" != killed ] || killall -KILL heap-hostile
	kill $input
	wait $input $member
	return $status
}
