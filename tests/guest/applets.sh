#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's busybox in the realm prints what it prints under Linux.
# kernels: 6.1
# more kernels: 6.12-rt
# shared: yes
# tier: full
# timeout: 600
# full: MIB=64
set -u
cd "$(mktemp -d)" || exit 1
failed=0

# same NAME COMMAND: the shell line COMMAND, with `bb` for busybox, has one output and one status in
# both realms.
same() {
	local name=$1 line=$2
	bb() { busybox "$@"; }
	eval "$line" >linux.out 2>linux.err; local linux=$?
	bb() { crtos run -- busybox "$@"; }
	eval "$line" >realm.out 2>realm.err; local realm=$?
	if [ $linux = $realm ] && cmp -s linux.out realm.out && cmp -s linux.err realm.err; then
		echo "ok $name"
		return
	fi
	echo "FAILED $name: status $linux under Linux, $realm in the realm"
	diff linux.out realm.out | head -5
	diff linux.err realm.err | head -5
	failed=1
}

head -c $((${MIB:-4} << 20)) /dev/urandom >big
head -c $((${MIB:-4} * 400000)) /dev/urandom | base64 >text
for file in /bin/busybox /etc/passwd; do
	same "md5sum $file" "bb md5sum $file"
done
same 'sha256sum of a big file' 'bb sha256sum big'
same 'wc' 'bb wc text'
same 'cat much from a pipe' 'cat big | bb cat | md5sum'
same 'cat a big file to a pipe' 'bb cat big | md5sum'
same 'ls -lR' 'bb ls -lR /usr/lib/python3.11'
same 'dd' 'bb dd if=big bs=64k count=100 2>/dev/null | md5sum'
same 'sort 10 MB' 'bb sort text | md5sum'
same 'sort -r -k1.5' 'head -20000 text | bb sort -r -k1.5'
same 'date' 'bb date -u +%Y-%m-%d'
same 'date of a file' 'bb date -r /etc/passwd'
same 'uname -a' 'bb uname -a'
same 'stat' 'bb stat /etc/passwd'
same 'stat -f' 'bb stat -f -c "%S %b" /proc'
same 'sleep 0.2' 'bb sleep 0.2'
same 'gzip -c | zcat' 'bb gzip -c text | bb zcat | md5sum'
same 'gzip' 'bb gzip -c text | md5sum'
same 'awk' "bb awk '{ n += length(\$0) } END { print NR, n, sin(1), 2 ** 0.5 }' text"
same 'awk -F' "bb awk -F: '{ print \$1, \$3 + 1 }' /etc/passwd"
same 'sed' "bb sed -n 's/root/ROOT/p;\$=' /etc/passwd"
same 'exit status 7' "bb sh -c 'exit 7'"
same 'false' 'bb false'
same 'sh arithmetic' "bb sh -c 'i=0; while [ \$i -lt 1000 ]; do i=\$((i+1)); done; echo \$i \$0 \"\$@\"' zero one two"
same 'grep' 'bb grep -n root /etc/passwd'
same 'find' 'bb find /etc -name "*.conf"'
same 'head and tail' 'bb head -3 /etc/passwd; bb tail -2 /etc/passwd'
same 'cut, tr, uniq' 'bb cut -d: -f7 /etc/passwd | bb sort | bb uniq -c | bb tr a-z A-Z'
same 'od' 'bb od -An -tx1 -N64 /bin/busybox'
same 'tar' 'bb tar -cf - -C /etc passwd group | md5sum'
same 'files' 'bb mkdir d; bb touch d/f; bb chmod 640 d/f; bb ln -s f d/l; bb mv d/f d/g; bb cp /etc/passwd d/p; bb ls -1 d; bb rm -r d'
same 'environment' 'FOO="a b" bb env | grep FOO'
same 'missing file' 'bb cat /nonexistent'
same 'working directory' 'bb pwd'
same 'umask' '(umask 027; bb touch u; bb stat -c %a u; rm -f u)'
same 'expr, seq, printf' 'bb expr 6 "*" 7; bb seq 1 3 20; bb printf "%05d %s\n" 42 x'
same 'broken pipe' 'bb yes | head -1'

# Several programs at once with almost as many arguments as Linux allows.
argument=$(head -c 100000 /dev/zero | tr '\0' x)
arguments=$(for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do echo "$argument"; done)
for number in 1 2 3 4; do
	# shellcheck disable=SC2086 # one argument a line
	crtos run -- busybox echo $arguments >arguments.$number 2>&1 &
done
wait
for number in 1 2 3 4; do
	size=$(wc -c <arguments.$number)
	[ "$size" = 1800018 ] || { echo "FAILED long arguments: $size bytes"; failed=1; }
done
exit $failed
