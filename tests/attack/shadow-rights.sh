#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Who has power over the shadows of their own programs, here by ptrace, gets nothing of what their
# programs are not permitted: neither memory of a program of the same user that has more rights, nor
# power over the CPUs, the limits and the reservation of another user's, nor the priority that root
# without CAP_SYS_NICE is refused. What they call a file is so for them alone.
# kernels: 6.1
# more kernels: 6.12
# realm: no
# shared: yes
# uses: member
# timeout: 600
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
chmod 755 .
forge=$PROGRAMS/forge
crtos up --cpus 2,3 --memory 512M || exit 1

# A directory of another name, which a member alone sees, has the file that they map first.
cp "$forge" named
mkdir own
sleep 2
# shellcheck disable=SC2016
same 'a member has a name for a file' "called $PWD/own/named" \
	"$(member unshare --user --map-root-user --mount sh -c \
		'mount --bind . own && exec crtos run -- "$1" called own/named' sh "$forge")"
same 'it is a name for them alone' "called $PWD/named" "$(crtos run -- "$forge" called named)"

# keep COMMAND...: a program that has something in its memory. let_go: it ends.
mkfifo pipe
keep() {
	# shellcheck disable=SC2086
	"$@" crtos run -- "$forge" keep $reserves <pipe >kept &
	exec 3>pipe
	await '[ -s kept ]' || fail 'nobody keeps anything'
	read -r pid address <kept
}
let_go() {
	exec 3>&-
	wait
	rm kept
}
reserves=
fault=-14 # EFAULT, what Linux tells whoever may reach that memory
peeked() { member "$forge" answer 310 $fault crtos run -- "$forge" peek "$pid" "$address"; }
keep member
same 'memory of a program of the same user is reached' 'peeked secret' "$(peeked)"
let_go
keep member --inh-caps +net_raw --ambient-caps +net_raw
same 'that of one with more rights is not' 'peeked nothing' "$(peeked)"
let_go
keep
same 'that of another user is not' 'peeked nothing' "$(peeked)"
let_go

# What Linux refuses of another user's program: sched_setaffinity, prlimit64, sched_setattr.
reserves=deadline
keep
before=$(crtos run -- "$forge" state "$pid")
echo "root's program has $before"
for try in '203 confine' '302 limit' '314 starve'; do
	# shellcheck disable=SC2086
	set -- $try
	member "$forge" success "$1" crtos run -- "$forge" "$2" "$pid"
	same "others do not $2 it" "$before" "$(crtos run -- "$forge" state "$pid")"
done
# Linux says that the mask cannot be read, and not who may.
member crtos run -- "$forge" confine "$pid" again
same 'nor by a mask that comes and goes' "$before" "$(crtos run -- "$forge" state "$pid")"
let_go
reserves=

# A thread waits for Linux to agree, which its shadow never asks.
same 'root has a priority' 'policy 1' "$(crtos run -- "$forge" promote)"
same 'root without the right for that has none' 'policy 0' \
	"$(timeout 100 setpriv --bounding-set -sys_nice --inh-caps -sys_nice \
		"$forge" halt 314 crtos run -- "$forge" promote)"

crtos down || fail down
exit "$failed"
