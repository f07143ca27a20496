#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The programs of tests/abi that take arguments do the same under Linux and in the realm: start,
# ways to end, registers, noise.
# kernels: 6.1
# more kernels: 6.12
# shared: yes
# timeout: 600
set -u
cd "$(mktemp -d)" || exit 1
ABI=/usr/lib/crtos-tests/abi
failed=0

# same PROGRAM ARG…
same() {
	local program=$ABI/$1; shift
	# The shell itself tells of deaths by signal; that is not to be compared.
	{ "$program" "$@" >linux.out 2>linux.err; local linux=$?; } 2>/dev/null
	{ crtos run -- "$program" "$@" >realm.out 2>realm.err; local realm=$?; } 2>/dev/null
	if [ $linux = $realm ] && cmp -s linux.out realm.out && cmp -s linux.err realm.err &&
		! grep -q ^FAILED linux.out; then
		echo "ok ${program##*/} $*"
		return
	fi
	echo "FAILED ${program##*/} $*: status $linux under Linux, $realm in the realm"
	grep -A1 ^FAILED linux.out | sed 's/^/  Linux: /' | head -10
	diff linux.out realm.out | head -20
	diff linux.err realm.err | head -5
	failed=1
}

CHECKED='a b=c' same startup one '' three
for way in exit0 exit7 exit255 exit300 thread-exit read write kernel noncanonical jump \
	far-jump data stack bad-stack-call divide illegal breakpoint step halt port \
	clear-interrupts control register xsetbv vmrun monitor invd vmcall root-state \
	software-interrupt abort raise1 raise2 raise6 raise9 raise10 raise11 raise13 raise15 \
	raise17 raise28 kill15 kill64; do
	same end $way
done

# What is ignored when a program starts stays ignored; what is blocked stays blocked.
(trap '' INT; same end raise2) || failed=1
(
	trap '' PIPE
	crtos run -- busybox yes 2>/dev/null | head -1 >/dev/null
	[ "${PIPESTATUS[0]}" = 1 ]
) || { echo 'FAILED ignored SIGPIPE'; failed=1; }

# Several programs share the realm's CPU and keep their registers.
"$ABI/floating" >linux.out
for number in 1 2 3 4; do
	crtos run -- "$ABI/floating" >realm.$number &
done
wait
for number in 1 2 3 4; do
	cmp linux.out realm.$number || { echo "FAILED floating $number"; failed=1; }
done

# Nothing that a program asks for stops the kernel.
for seed in 1 2 3 4 5 6; do
	timeout 200 crtos run -- "$ABI/fuzz" 20000 $seed >fuzz.out 2>&1; status=$?
	[ $status = 124 ] && { echo "FAILED fuzz $seed hangs"; failed=1; }
	echo "fuzz $seed: status $status"
done
[ "$(timeout 100 crtos run -- busybox echo alive)" = alive ] || { echo 'FAILED the kernel after fuzz'; failed=1; }
exit $failed
