#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The hypervisor, a cell and the realm on an emulator that shares no code with QEMU, with a slow
# processor in xAPIC mode.
# tier: full
# timeout: 4000
set -u
# shellcheck disable=SC2016 # The guest expands it.
exec ./x vm --emulator bochs --kernel 6.12 --smp 2 --no-realm --timeout 3900 -- '
failed=0
fail() { echo "FAILED $*"; failed=1; }
await() { for _ in {1..300}; do eval "$1" && return; sleep 0.1; done; return 1; }
state() { crtos cell list --json | gojq -r ".[] | select(.name == \"probe\") | .state"; }
lines() { crtos log | grep " probe: "; }
all() { taskset -c 0 true && taskset -c 1 true; }
# run SELECTOR TEXT STATE: the cell has to say TEXT in the log, and to be in STATE then.
run() {
	local before
	before=$(lines | wc -l)
	crtos cell start probe /usr/lib/crtos/inmates/prober.elf --command-line "$1" ||
		{ fail "$1: start"; return; }
	await "lines | tail -n +$((before + 1)) | grep \"$2\"" || fail "$1: $(lines | tail -1)"
	await "[ \"\$(state)\" = $3 ]" || fail "$1: $(state)"
	crtos cell stop probe || fail "$1: stop"
}
stops() { run "$1" "stopped: $2" failed; }
survives() { run "$1" "$2" running; }

crtos check || fail check
dmesg --clear
echo "--- a cell, $(cut -d " " -f 1 /proc/uptime) s"
modprobe crtos && crtos cell create probe --cpus 1 --memory 4M --port 0x70-0x71 || exit 1
stops memory "read of memory"
stops memory-write "write to memory"
stops memory-execute "read of memory"
stops apic-page "write to memory"
stops "port port=0x80" port
stops msr-read "read of a register"
stops icr-foreign "interrupt command"
stops icr-init "interrupt command"
stops vmrun "instruction that cells do not have"
stops efer-svme "instruction that cells do not have"
stops xsetbv XSETBV
stops triple-fault "triple fault"
survives step "exception 1 error 0x0"
survives "port port=0x71" "still alive"
survives icr-broadcast-nmi "still alive"
crtos down || fail down
all || fail "CPUs after the cell"

echo "--- the realm, $(cut -d " " -f 1 /proc/uptime) s"
crtos up --cpus 1 --memory 256M || exit 1
crtos run -- busybox sh -c "echo \$((6 * 7)) \$(cat /proc/version)" >/tmp/realm || fail busybox
[ "$(cat /tmp/realm)" = "42 $(cat /proc/version)" ] || fail "busybox: $(cat /tmp/realm)"
for test in fork floating futex signals threads vdso; do
	program=/usr/lib/crtos-tests/abi/$test
	$program >/tmp/linux || fail "$test in Linux"
	crtos run -- $program >/tmp/realm || fail "$test in the realm"
	cmp /tmp/linux /tmp/realm || fail "$test prints something else"
	echo "$test, $(cut -d " " -f 1 /proc/uptime) s"
done
echo l >/proc/sysrq-trigger
crtos stats
crtos down || fail down
all || fail "CPUs after the realm"
[ "$(cat /sys/devices/system/cpu/online)" = 0-1 ] || fail "CPUs online"
dmesg | grep -E "Uhhuh|Dazed|WARNING|BUG:" && fail dmesg
echo "--- the end, $(cut -d " " -f 1 /proc/uptime) s"
exit $failed' </dev/null
