#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs in containers run in the realm, where the device is passed in: under bubblewrap, as root
# and as a member, with and without a pid namespace. What they see is what they see in such a
# container under Linux. An id means there what it does in its namespace, so none of another
# container's is reached by it.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# packages: bubblewrap,python3-minimal
# tier: full
# timeout: 900
# Functions are called by their names in variables.
# shellcheck disable=SC2317
set -u
cd "$(mktemp -d)" || exit 1
chmod 755 .
ABI=/usr/lib/crtos-tests/abi
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe crtos
dmesg --clear
crtos up --cpus 3 --memory 512M || exit 1
group=$(stat -c %g /dev/crtos)
member() { setpriv --reuid 12345 --regid 12345 --groups "$group" "$@"; }
box() {
	timeout 200 bwrap --ro-bind / / --dev /dev --dev-bind /dev/crtos /dev/crtos --proc /proc \
		--tmpfs /tmp "$@"
}
plain() { timeout 200 bwrap --ro-bind / / --dev-bind /dev/crtos /dev/crtos "$@"; }
apart() { box --unshare-all "$@"; }
member_plain() {
	member timeout 200 bwrap --ro-bind / / --dev-bind /dev/crtos /dev/crtos "$@"
}
member_apart() {
	member timeout 200 bwrap --ro-bind / / --dev /dev --dev-bind /dev/crtos /dev/crtos \
		--proc /proc --tmpfs /tmp --unshare-all "$@"
}
# As the first process of its namespace.
first() { timeout 200 unshare --pid --fork --mount-proc "$@"; }

# same WHERE COMMAND...: does the same in that container under Linux and in the realm.
same() {
	local where=$1 linux realm
	shift
	{ $where "$@" >linux.out 2>linux.err </dev/null; linux=$?; } 2>/dev/null
	{ $where crtos run -- "$@" >realm.out 2>realm.err </dev/null; realm=$?; } 2>/dev/null
	if [ $linux = $realm ] && [ $linux != 125 ] && cmp -s linux.out realm.out &&
		! grep -q ^FAILED linux.out; then
		echo "ok $where: $*"
		return
	fi
	fail "$where: $*: status $linux under Linux, $realm in the realm"
	diff linux.out realm.out | head -20
	diff linux.err realm.err | tail -5
}

for where in plain apart member_plain member_apart; do
	for program in thread-signals siginfo; do
		same $where $ABI/$program
	done
done
for program in fork threads signals exec-signals vfork; do
	same member_apart $ABI/$program
done

# As docs/install.md has it.
command=$(sed -n 's/^    \(bwrap .*\)PROGRAM$/\1echo there/p' /usr/share/doc/crtos/install.md)
[ "$(eval "$command")" = there ] || fail "the page's command: $command"

# Ids are those of the namespace, wherever a program sees them.
cat >ids.py <<'END'
import ctypes, os, signal, socket, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
print(os.getpid(), os.getppid(), threading.get_native_id(), os.getpgrp())
print(os.readlink('/proc/self'), os.readlink('/proc/thread-self'))
one, other = socket.socketpair()
print(struct.unpack('iii', one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
child = os.fork()
if not child:
    os._exit(os.getppid() & 127)
print(child, os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT).si_pid, os.waitpid(child, 0))
# Before the thread, which could take it while it ends.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
thread = threading.Thread(target=lambda: print(os.getpid() < threading.get_native_id() < 50))
thread.start()
thread.join()
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigwaitinfo([signal.SIGUSR1]).si_pid)
print(sorted(int(name) for name in os.listdir('/proc') if name.isdigit()))
END
cp ids.py /usr/lib/crtos-tests/
same apart python3 /usr/lib/crtos-tests/ids.py
same member_apart python3 /usr/lib/crtos-tests/ids.py
same first python3 /usr/lib/crtos-tests/ids.py

# Who is the first one is ended by no signal from within, unless a handler takes it.
# shellcheck disable=SC2016
same first sh -c 'for s in TERM INT ABRT STOP KILL; do kill -$s $$; echo $s $$ lives; done'
# shellcheck disable=SC2016
same first sh -c 'trap "echo taken; exit 3" TERM; kill $$; sleep 1; echo not taken'
# shellcheck disable=SC2016
same first sh -c 'sh -c "kill 1; echo \$\$ \$PPID; kill \$\$"; echo $?; kill -0 1 && echo there'
# shellcheck disable=SC2016
same first bash -c 'sleep 100 & kill $!; wait $!; echo $?; sh -c "exit 7" & wait $!; echo $?'

# Two containers in which all ids are the same, both of one user.
victim() {
	# shellcheck disable=SC2016
	"$@" sh -c 'crtos run -- sleep 1000 & sleep 2; echo $! >&3; wait $!; echo $?' 3>first &
	await '[ -s first ]' 300 || fail 'no victim'
}
for user in apart member_apart; do
	rm -f first
	victim $user >ended
	inside=$(cat first)
	outside=$(crtos ps --json | gojq -r '.[] | select(.command == "sleep") | .pid')
	[ "${inside:-none}" != "$outside" ] || fail "the victim is $inside inside and outside"
	[ "$(tr '\0' ' ' <"/proc/$outside/comm")" = sleep ] || fail "$outside is another one"
	cat >reach.py <<'END'
import os, signal, sys, time
victim = int(sys.argv[1])
def refused(what, call):
    try:
        call()
        print(what, 'is reached')
    except OSError:
        pass
refused('kill', lambda: os.kill(victim, 9))
refused('term', lambda: os.kill(victim, 15))
refused('policy', lambda: os.sched_getscheduler(victim))
refused('affinity', lambda: os.sched_setaffinity(victim, {3}))
refused('clock', lambda: time.clock_gettime(~victim << 3 | 2))
END
	cp reach.py /usr/lib/crtos-tests/
	$user crtos run -- python3 /usr/lib/crtos-tests/reach.py "$inside" >reached 2>&1
	[ -s reached ] && { fail "$user reaches another container:"; cat reached; }
	# A list has who is in the container, by the ids there.
	# shellcheck disable=SC2016
	$user sh -c 'crtos run -- sleep 5 & sleep 2; echo $!; crtos ps --json; wait' >listed
	own=$(head -1 listed)
	shown=$(tail -n +2 listed | gojq -r '[.[].pid] | join(" ")')
	[ "$shown" = "$own" ] || fail "$user: ps shows $shown, not $own"
	kill -0 "$outside" || fail "the victim is gone"
	kill "$outside"
	await '[ -s ended ]' 300 || fail 'no end'
	[ "$(cat ended)" = 143 ] || fail "the victim ended with $(cat ended)"
	wait
done

# An engine makes a device node of the container's own, on a file system that goes with it, while a
# page of the program is still in a pipe.
cat >page.py <<'END'
import ctypes, mmap
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
page.write(b'x' * 4096)
class Range(ctypes.Structure):
    _fields_ = [('start', ctypes.c_void_p), ('length', ctypes.c_size_t)]
start = ctypes.addressof(ctypes.c_char.from_buffer(page))
done = libc.vmsplice(1, ctypes.byref(Range(start, 4096)), ctypes.c_ulong(1), 0)
assert done == 4096, ctypes.get_errno()
END
node="c $(stat -c '0x%t 0x%T' /dev/crtos)"
mkdir devices
own_node() {
	unshare --mount sh -c "mount -t tmpfs box devices && mknod devices/crtos $node &&
		mount --bind devices/crtos /dev/crtos && umount -l devices && exec \"\$@\"" sh "$@"
}
own_node crtos run -- python3 page.py | {
	await '[ -z "$(crtos ps --json | gojq -r ".[].pid")" ]' 300
	sleep 2
	cat
} >page
[ "$(cat page)" = "$(printf '%4096s' '' | tr ' ' x)" ] || fail 'a page in a pipe'
[ "$(own_node crtos run -- echo there)" = there ] || fail 'a node of its own'

# The device is needed, and gives no more than it does outside.
bwrap --ro-bind / / --dev /dev crtos run -- true 2>err && fail 'without the device'
grep -q 'crtos explain' err || { fail 'without the device'; cat err; }
for user in apart member_apart; do
	$user crtos cell create one --cpus 2 --memory 4M 2>err && fail "$user: a cell"
	grep -q 'explain not-permitted' err || { fail "$user: a cell"; cat err; }
done

crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
