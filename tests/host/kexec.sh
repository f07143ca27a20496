#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux starts another kernel (kexec) under a realm that is not locked, with a program: both end,
# the hypervisor leaves, and the other kernel has the whole machine, as it has without crtos.
# tier: full
# timeout: 900
set -u
dir=$(mktemp -d)
vm=
trap '[ -z "$vm" ] || kill "$vm" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
failed=0
fail() { echo "FAILED $*"; failed=1; }
mkdir "$dir/share"
cp .cache/kernels/6.12/boot/vmlinuz-* "$dir/share/vmlinuz"

# next NAME SCRIPT: boots, and starts the kernel after the script. Its console is $dir/NAME; it ends
# when it finds no root.
next() {
	./x vm --no-realm --kernel 6.12 --on-panic wait --console "$dir/$1" --share "$dir/share" \
		--timeout 600 -- "
		$2
		kexec --load /mnt/share/vmlinuz --command-line=\"\$(sed 's/ quiet / /' /proc/cmdline)\" &&
			kexec --exec
		sleep 600" </dev/null >"$dir/out" 2>&1 &
	vm=$!
	for _ in {1..1500}; do
		grep -aqs 'Unable to mount root' "$dir/$1" && break
		kill -0 $vm 2>/dev/null || { fail "$1: the machine has ended"; cat "$dir/out"; break; }
		sleep 0.2
	done
	kill $vm 2>/dev/null
	wait $vm 2>/dev/null
	vm=
}
# What the other kernel says of processors and memory; the first one is quiet.
machine() {
	tr -d '\r' <"$dir/$1" | grep -aoE 'Brought up .*|/[0-9]*K available|BIOS-e820: .*'
}
next bare ''
next realm '
	crtos up --cpus 3 --memory 256M || exit 1
	crtos run -- sleep 1000 &
	until crtos ps | grep -q sleep; do sleep 0.2; done
	crtos cell list'
grep -q realtime "$dir/out" || { fail 'no realm'; cat "$dir/out"; }
machine bare >"$dir/expected"
grep -q 'Brought up 1 node, 4 CPUs' "$dir/expected" || fail 'the other kernel has not come up'
machine realm | diff "$dir/expected" - || fail 'it finds another machine'
exit $failed
