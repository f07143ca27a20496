#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The realm's memory comes from Linux's pool of huge pages where Linux has no other memory. The pool
# is as large as before after `down`, after a failure, and after a command that was killed.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# tier: full
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe crtos	# Linux warns of modules that are not its own
dmesg --clear
pool=/sys/kernel/mm/hugepages/hugepages-2048kB
has() { cat $pool/nr_hugepages; }
words=(crtos up --cpus 3 --memory 256M --memory-from hugetlb)
up() { "${words[@]}" "$@" 2>err; }

up --dry-run >/dev/null && fail 'no pool, and it would'
grep -q "of the pool's 0 pages 0 are free" err && grep -q 'huge-pages-short' err || { fail 'no pool'; cat err; }

echo 140 >$pool/nr_hugepages
[ "$(has)" = 140 ] || { fail "a pool of $(has) pages"; exit 1; }
# What else Linux has goes to a file of tmpfs, but for what programs need.
mkdir full && mount -t tmpfs -o size=100% none full || exit 1
available() { awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo; }
head -c $(($(available) - 200 * 1024))K /dev/zero >full/file || fail 'memory is not filled'
crtos up --cpus 3 --memory 256M 2>err && fail 'Linux has the memory'
grep -q memory-short err || { fail 'not for want of memory'; cat err; }

up --dry-run >out || { fail 'dry run'; cat err; }
grep -q "of memory from Linux's pool of huge pages" out || { fail 'it does not say from where'; cat out; }
[ "$(has)" = 140 ] || fail 'a dry run takes pages'
up || { fail up; cat err; exit 1; }
[ "$(has)" = 12 ] || fail "the pool has $(has) pages beside the realm"
[ "$(crtos run -- busybox echo there)" = there ] || fail run
crtos down || fail down
[ "$(has)" = 140 ] || fail "the pool has $(has) pages after down"

# What a program of Linux uses, and what it was promised, is not taken.
python3 - <<'P' &
import mmap, time
# MAP_HUGETLB
pages = mmap.mmap(-1, 20 << 21, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | 0x40000)
pages[0] = 1
open('mapped', 'w').close()
time.sleep(600)
P
program=$!
await '[ -e mapped ]' || fail 'no program with huge pages'
up && fail 'it takes what is promised'
grep -q "128 pages of 2 MiB, and of the pool's 140 pages 120 are free" err || { fail 'other numbers'; cat err; }
kill $program
wait $program
await "[ \"\$(cat $pool/free_hugepages)\" = 140 ]" || fail 'the pages are not free again'

# A realm that does not come up, and commands that are killed.
up --kernel /bin/true && fail 'a kernel that is none'
up --port 0x3f8-0x3ff:exclusive && fail "ports of Linux's console"
[ "$(has)" = 140 ] || fail "the pool has $(has) pages after failures"
for seconds in 0.02 0.06 0.12 0.2 0.3 0.45; do
	# Not by the function, of which a shell of its own would be killed.
	"${words[@]}" >/dev/null 2>&1 & command=$!
	sleep $seconds
	kill -KILL $command 2>/dev/null
	wait $command 2>/dev/null
	crtos down --force >/dev/null 2>&1
done
[ "$(has)" = 140 ] || fail "the pool has $(has) pages after kills"

# killed_at CALLS COMMAND...: kills the command at the first, then at the second of these system
# calls, and so on, until it ends before; then at each write that changes the pool.
killed_at() {
	local calls=$1 at
	shift
	for at in {1..20}; do
		traced -e inject="$calls:signal=KILL:when=$at" "$@" && break
		is_whole "$calls $at of $*"
	done
	[ "$at" -gt 1 ] || fail "$* makes no $calls"
	traced -P $pool/nr_hugepages -e inject=write:signal=KILL "$@" && fail "$* changes no pool"
	is_whole "the pool's write of $*"
}
# Whether the command ends by itself.
traced() {
	crtos down >/dev/null 2>&1
	[ "$TO_BE_UP" = no ] || up || { fail "up before $*"; cat err; }
	strace -f -qq -o /dev/null "$@" >/dev/null 2>&1
}
is_whole() {
	crtos down --force >/dev/null 2>&1
	[ "$(has)" = 140 ] || fail "the pool has $(has) pages after kill at $1"
}
TO_BE_UP=no killed_at rename "${words[@]}"
TO_BE_UP=yes killed_at rename,unlink crtos down
up || { fail 'up after kills'; cat err; }
crtos down || fail 'down after kills'
[ "$(has)" = 140 ] || fail "the pool has $(has) pages after kills"
umount full
echo 0 >$pool/nr_hugepages
complaints | grep . && fail dmesg
exit $failed
