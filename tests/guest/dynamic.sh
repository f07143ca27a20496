#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's own dynamically linked programs do the same under Linux and in the realm.
# kernels: 6.1
# more kernels: 6.12
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
failed=0

# same COMMAND…: COMMAND prints the same, with the same status, under Linux and in the realm; both
# get this shell's input.
same() {
	local input linux realm
	input=$(mktemp)
	[ -t 0 ] || cat >"$input"
	"$@" <"$input" >linux.out 2>linux.err; linux=$?
	crtos run -- "$@" <"$input" >realm.out 2>realm.err; realm=$?
	if [ $linux = $realm ] && cmp -s linux.out realm.out && cmp -s linux.err realm.err; then
		echo "ok $*"
		return
	fi
	echo "FAILED $*: status $linux under Linux, $realm in the realm"
	diff linux.out realm.out | head -10
	diff linux.err realm.err | head -5
	failed=1
}

same true </dev/null
same false </dev/null
same ls -la /usr </dev/null
same ls /absent </dev/null
same cat /etc/debian_version </dev/null
same sort -n < <(seq 3000 | tac)
same grep -c 7 < <(seq 5000)
same sha256sum /bin/bash /bin/true </dev/null
same tar -cf - -C /etc debian_version os-release </dev/null
same gzip -c < <(seq 20000)
same sed s/1/one/g < <(seq 100)
same awk '{ s += $1 } END { print s }' < <(seq 100)
same date -u -d @1000000000 </dev/null
same env -i A=b env </dev/null
same find /etc -maxdepth 1 -name 'd*' </dev/null
same bash -c 'echo $((6 * 7)); f() { echo "$1"; }; f x; for i in 1 2 3; do echo $i; done; exit 3' </dev/null
same bash -c 'seq 200 | sort -rn | head -3; echo "$(echo nested)"; ls /bin/true & wait; (exit 4); echo $?' </dev/null
same bash -c 'x=$(echo $(echo $(echo deep))); echo $x; diff <(seq 3) <(seq 4)' </dev/null
same perl -e 'use POSIX; print floor(3.7), " ", join(",", map { $_ * 2 } 1 .. 5), "\n"; exit 5' </dev/null
same perl -MFile::Temp -MList::Util=sum -e 'print sum(1 .. 100), "\n"; print `echo from a child`' </dev/null
command -v python3 >/dev/null && {
	same python3 -c 'import sys, json, hashlib; print(json.dumps({"a": [1, 2]}), hashlib.sha256(b"x").hexdigest()); sys.exit(6)' </dev/null
	same python3 -c 'import subprocess; print(subprocess.run(["ls", "/etc/os-release"], capture_output=True).stdout)' </dev/null
}
# The loader itself, which lists what a program needs; the addresses differ from run to run.
crtos run -- /lib64/ld-linux-x86-64.so.2 --list /bin/bash | sed 's/ (0x.*//' >realm.out
/lib64/ld-linux-x86-64.so.2 --list /bin/bash | sed 's/ (0x.*//' >linux.out
diff linux.out realm.out || { echo 'FAILED ld.so --list'; failed=1; }
# A library loaded early.
LD_DEBUG=files crtos run -- true 2>&1 | grep -q 'calling init: /lib' || { echo 'FAILED LD_DEBUG'; failed=1; }
# execve of dynamic programs, static ones and scripts.
printf '#!/bin/bash\necho "script $0 $1"\n' >script; chmod +x script
same bash -c './script a; echo b | ./script c | cat; exec ./script d' </dev/null
same bash -c 'seq 2000 | gzip | gunzip | gzip | zcat | md5sum' </dev/null
same ./script e </dev/null
same bash -c 'exec busybox echo static' </dev/null
same busybox sh -c 'exec /bin/echo dynamic' </dev/null
# What goes wrong.
sed 's|/lib64/ld-linux-x86-64.so.2|/lib64/ld-linux-x86-64.so.9|' /bin/true >loaderless; chmod +x loaderless
same bash -c './loaderless' </dev/null
exit $failed
