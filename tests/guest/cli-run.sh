#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `crtos run` behaves like running the program.
# kernels: 6.1
# more kernels: 6.12
# shared: yes
set -u
failed=0
cd "$(mktemp -d)" || exit 1
chmod 755 .

# is NAME EXPECTED COMMAND: the shell line COMMAND prints EXPECTED.
is() {
	local got; got=$(eval "$3" 2>&1)
	if [ "$got" = "$2" ]; then echo "ok $1"; else echo "FAILED $1: expected '$2', got '$got'"; failed=1; fi
}
# started: the program that was last started in the background runs.
# shellcheck disable=SC2317
started() { await "crtos ps | grep -q '^ *$! .*busybox  *[SL]'"; }

is 'output' hello 'crtos run -- busybox echo hello'
is 'no --' hello 'crtos run busybox echo hello'
is 'options of the program' '-n --help' "crtos run busybox printf '%s %s' -n --help"
is 'a path' hello 'crtos run /bin/busybox echo hello'
is 'a link as argument zero' hello 'ln -s /bin/busybox echo; crtos run ./echo hello'
is 'a script' 'hello ./script a b' 'printf "#! /bin/busybox sh\necho hello \$0 \$@\n" >script; chmod +x script; crtos run ./script a b'
is 'a script of a script' 'inner -x ./script y' 'printf "#! ./inner -x\n" >script; printf "#!/bin/sh\necho inner \$@\n" >inner; chmod +x inner; crtos run ./script y'
is 'status 0' 0 'crtos run busybox true; echo $?'
is 'status 1' 1 'crtos run busybox false; echo $?'
is 'status 7' 7 "crtos run busybox sh -c 'exit 7'; echo \$?"
is 'status 255' 255 "crtos run busybox sh -c 'exit 255'; echo \$?"
is 'status 127' 127 'crtos run ./absent 2>/dev/null; echo $?'
is 'status 126' 126 'crtos run . 2>/dev/null; echo $?'
is 'pid' same "crtos run busybox sh -c 'echo \$\$' >pid & child=\$!; wait; [ \$child = \$(cat pid) ] && echo same"
is 'parent' same "crtos run busybox sh -c 'echo \$PPID' >ppid; [ \$(cat ppid) = \$BASHPID ] && echo same"
is 'environment' 'a b' "X='a b' crtos run busybox sh -c 'echo \"\$X\"'"
is 'empty environment' 'PATH=/bin:/usr/sbin' 'env -i PATH=/bin:/usr/sbin crtos run busybox env'
is 'directory' "$PWD" 'crtos run busybox pwd'
is 'standard input' 3 'printf "1\n2\n3\n" | crtos run busybox wc -l'
is 'standard error' out 'crtos run busybox sh -c "echo out; echo err >&2" 2>/dev/null'
is 'umask' 600 '(umask 077; crtos run busybox touch u; stat -c %a u)'
is 'descriptor limit' 100 "(ulimit -n 100; crtos run busybox sh -c 'ulimit -n')"
is 'empty argument' '[]' "crtos run busybox printf '[%s]' ''"
is 'many arguments' 2000 "crtos run busybox sh -c 'echo \$#' x \$(seq 2000)"
is 'SIGTERM' 143 'crtos run busybox sleep 1000 & started; kill $!; wait $!; echo $?'
is 'SIGKILL' 137 'crtos run busybox sleep 1000 & started; kill -9 $!; wait $!; echo $?'
is 'SIGINT' 130 'bash -c "trap \"exit 99\" INT; timeout --foreground -s INT 0.5 crtos run busybox sleep 20; exit \$?"; echo $? | sed s/124/130/'
is 'broken pipe' 0 'crtos run busybox yes 2>/dev/null | head -1 >/dev/null; echo $?'
is 'name in ps' busybox 'crtos run busybox sleep 1000 & started; ps -o comm= -p $!; kill $!; wait $! 2>/dev/null'
is 'another user' 65534 'chmod 666 /dev/crtos; setpriv --reuid 65534 --clear-groups crtos run busybox id -u; chmod 600 /dev/crtos'

# In a program of the realm, `crtos run` executes its program there, as a process of its own.
is 'within' 'inner -x ./script a b' "crtos run -- sh -c 'crtos run -- ./script a b'"
is 'within: twice' hello "crtos run -- sh -c 'crtos run -- crtos run -- busybox echo hello'"
is 'within: status' 7 "crtos run -- sh -c 'crtos run -- busybox sh -c \"exit 7\"; exit \$?'; echo \$?"
is 'within: status 127' 127 "crtos run -- sh -c 'crtos run -- ./absent 2>/dev/null'; echo \$?"
is 'within: pid' same "crtos run -- bash -c 'crtos run -- busybox sh -c \"echo \\\$\\\$\" >pid & wait; [ \$! = \$(cat pid) ] && echo same'"
is 'within: a process of the realm' busybox "crtos run -- bash -c 'crtos run -- busybox sleep 1000 & until crtos ps | grep \"^ *\$! .*busybox\" >ps; do sleep 0.1; done; kill \$!; grep -o busybox ps'"
is 'within: a pipe between two' 2 "crtos run -- sh -c 'crtos run -- seq 2 | crtos run -- wc -l'"
is 'within: descriptors' "$(crtos run -- ls /proc/self/fd)" "crtos run -- bash -c 'crtos run -- ls /proc/self/fd'"
is 'within: numbers of CPUs' 0 "crtos run -- sh -c 'crtos run --renumber-cpus -- cat /sys/devices/system/cpu/online'"
is 'within: /proc/self/exe is the program' hello "crtos run -- bash -c '/proc/self/exe -c \"echo hello\"; true'"
is 'within: the shadow by hand' 126 "crtos run -- sh -c '/usr/lib/crtos/shadow 1 2 2>/dev/null'; echo \$?"
exit $failed
