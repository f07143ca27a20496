#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A member of the group crtos has power over the shadows of their own programs, here by ptrace. What
# such a shadow says of files and rights gets them nothing of others: neither is what others execute
# or map theirs to make up, nor do they get a priority, ports, or somebody's ids.
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
crtos up --cpus 3 --memory 512M --port 0xe9 || exit 1

# A program of root, a forgery of the same size, and the forger's word that they are one file.
cp "$forge" victim
sed 's/GENUINE!/FORGERY!/' victim >mine
cp victim second
chmod 755 victim mine second
chown 12345 mine
sleep 2
same 'a forgery runs' FORGERY! \
	"$(member "$forge" status "$PWD/mine" "$PWD/victim" crtos run -- ./mine say)"
same 'the identity of a file is not forged' GENUINE! "$(crtos run -- ./victim say)"

# What the shadow reads of a file.
same 'the shadow is not asked for contents' GENUINE! \
	"$(member "$forge" contents GENUINE! FORGERY! crtos run -- ./second say)"
same 'the contents of a file are not forged' GENUINE! "$(crtos run -- ./second say)"

# hold FILE: root's program in the realm maps it shared. let_go: it tells what it has found.
mkfifo pipe
hold() {
	crtos run -- "$forge" hold "$1" <pipe >held &
	exec 3>pipe
	await 'grep -q holds held' || fail "nobody holds $1"
}
let_go() {
	exec 3>&-
	wait
	found=$(tail -n 1 held)
}
truncate -s 4096 /dev/shm/secret /dev/shm/own /dev/shm/notes
chmod 600 /dev/shm/secret
chmod 644 /dev/shm/notes
chown 12345 /dev/shm/own
hold /dev/shm/secret
member "$forge" status /dev/shm/own /dev/shm/secret crtos run -- "$forge" take /dev/shm/own >took
grep -q secret took && fail 'a file that could not be opened was mapped'
let_go
same 'a file that could not be opened is not written' 'held secret' "$found"

# A file that may be read, and the shadow's word that it was written.
hold /dev/shm/notes
member "$forge" success 1 crtos run -- "$forge" put /dev/shm/notes >/dev/null
let_go
same 'what was opened for reading is not written' 'held secret' "$found"

# The same, and the shadow's word that it has a hole. The file does not lie in memory alone that
# Linux shares.
mkdir disk
mount -t ramfs none disk
head -c 4096 /dev/zero >disk/notes
hold "$PWD/disk/notes"
member "$forge" success 285 crtos run -- "$forge" punch "$PWD/disk/notes"
let_go
same 'what was opened for reading is not cleared' 'held secret' "$found"

# A segment of shared memory of root, and one of the member's.
segment() { "$@" ipcmk -M 4096 -p 600 | grep -o '[0-9]*$'; }
theirs=$(segment) own=$(segment member)
hold "$theirs"
member "$forge" segment "$theirs" "$own" crtos run -- "$forge" take "$theirs" >took
grep -q secret took && fail 'a segment was attached without right'
let_go
same 'a segment is not written without right' 'held secret' "$found"
ipcrm -m "$theirs" -m "$own"

# A segment of root that members may read: the shadow of the first who attaches it has the word.
shown=$(ipcmk -M 4096 -p 644 | grep -o '[0-9]*$')
crtos run -- "$forge" hold "$shown" </dev/null >/dev/null
mkfifo line
member "$forge" copies forged crtos run -- "$forge" look "$shown" <line >looked &
exec 4>line
await 'grep -q found looked' || fail "nobody looks at a segment: $(cat looked)"
same 'what a segment contains is not forged' 'found secret' \
	"$(crtos run -- "$forge" look "$shown" </dev/null)"
exec 4>&-
wait
ipcrm -m "$shown"

# What Linux refuses: setpriority, prlimit64, the mapping of a sealed file.
same 'a nice value is not forged' 'nice 0' \
	"$(member "$forge" success 141 crtos run -- "$forge" nice)"
same 'limits are not forged' few \
	"$(ulimit -i 20; member "$forge" success 302 crtos run -- "$forge" queue)"
same 'a sealed file is not written' 'sealed secret' \
	"$(member "$forge" success 9 crtos run -- "$forge" sealed)"

# What Linux refuses: sched_setattr, ioperm.
same 'a priority is not forged' 'raised -1 policy 0' \
	"$(member "$forge" success 314 crtos run -- "$forge" raise)"
same 'ports are not forged' 'port -1' "$(member "$forge" success 173 crtos run -- "$forge" port)"

# A user namespace has a root of its own.
crtos run -- busybox sleep 1000 &
victim=$!
await 'crtos ps | grep -qw $victim' || fail 'no victim'
member unshare --map-root-user crtos run -- busybox kill "$victim" >/dev/null &&
	fail 'a signal was sent'
sleep 1
kill -0 $victim 2>/dev/null || fail 'the root of a user namespace ended a program of root'
kill $victim
wait
# A pid namespace has ids of its own: the victim's is 2, and means nobody in another namespace.
unshare --pid --fork sh -c 'crtos run -- sleep 1000; echo $?' >ended &
await 'crtos ps | grep -qw sleep' || fail 'no victim in a namespace'
unshare --pid --fork crtos run -- sh -c 'true | true; kill 2; kill -9 2; kill 3' 2>/dev/null
[ -s ended ] && fail 'an id of another namespace was reached'
kill "$(crtos ps --json | gojq '.[] | select(.command == "sleep") | .pid')"
wait
same 'the one meant ends' 143 "$(cat ended)"

# Who is killed in the middle of execve goes, though somebody still has the file of the new program.
await '[ "$(crtos ps --json | gojq length)" = 0 ]' || fail "something is left: $(crtos ps)"
mkfifo seized
member "$forge" seize crtos run -- sh -c 'exec true' >seized &
read -r found <seized
same 'the file of a new program is kept' 'seized file' "$found"
await '[ "$(crtos ps --json | gojq length)" = 0 ]' || fail "a killed one is left: $(crtos ps)"

rm -f /dev/shm/secret /dev/shm/own /dev/shm/notes
umount disk
timeout 20 crtos down || fail down
exit "$failed"
