#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A cell that touches anything outside of its configuration is stopped. A second cell and Linux go
# on.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# timeout: 600
set -u
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
# state, exit reason and address of the failure of a cell
cell() {
	crtos cell list --json | gojq -r --arg name "$1" \
		'.[] | select(.name == $name) | [.state, if .state == "failed" then .failure | .cpu, .address else empty end] | join(" ")'
}
ticks() { crtos cell shared other --length 8 --raw | od -An -tu8 | tr -d ' '; }
# Since `before`.
ticked() { [ "$(ticks)" -gt "$before" ]; }

crtos cell create other --cpus 3 --memory 4M || exit 1
crtos cell start other $inmates/latency.elf --command-line 'period=2000 ticks=1000000' || exit 1
crtos cell create probe --cpus 2 --memory 4M --port 0x70-0x71 || exit 1
dmesg --clear

# probe ADDRESS TEXT SELECTOR...: the cell has to fail there, and its last line in the log has to
# say TEXT.
stops() {
	local address=$1 text=$2 before state
	shift 2
	before=$(ticks)
	crtos cell start probe $inmates/prober.elf --command-line "$*" || { fail "$*: start"; return; }
	await 'state=$(cell probe); [ "${state%% *}" = failed ]'
	[ "$state" = "failed 2 $((address))" ] || fail "$*: $state"
	crtos log | grep ' probe: stopped: ' | tail -1 | grep -q "$text" || fail "$*: log"
	[ "$(cell other)" = running ] || fail "$*: other cell $(cell other)"
	await ticked || fail "$*: the other cell does not tick"
	crtos cell stop probe || fail "$*: stop"
}
# The cell has to survive, without effect on others.
survives() {
	crtos cell start probe $inmates/prober.elf --command-line "$* id=$RANDOM" || { fail "$*: start"; return; }
	await "crtos log | tail -3 | grep -q 'probe: prober: still alive'" || fail "$*: does not tell"
	[ "$(cell probe)" = running ] || fail "$*: $(cell probe)"
	crtos cell stop probe || fail "$*: stop"
}

stops 0x600000 'read of memory' memory
stops 0x600000 'write to memory' memory-write
stops 0x600000 'memory' memory-execute
stops 0xc0200000 'read of memory' memory address=0xc0200000
stops 0xfee00300 'write to memory' apic-page
stops 0x80 'port' port port=0x80
stops 0x72 'port' port-write port=0x72
stops 0x10a 'read of a register' msr-read
stops 0xc0010117 'write to a register' msr-write msr=0xc0010117
stops 0xc0000104 'write to a register' msr-write msr=0xc0000104
stops 0xc0010015 'write to a register' msr-write msr=0xc0010015
stops 0x277f 'read of a register' msr-read msr=0x277f
stops 0x1b 'write to a register' apic-base
stops 0x80d 'write to a register' msr-write msr=0x80d
for command in icr-foreign 'icr-foreign target=3' 'icr-foreign target=77' icr-foreign-nmi \
	icr-logical icr-init icr-start-up icr-init-broadcast; do
	stops 0x830 'interrupt command' $command
done
stops 0x0 'instruction that cells do not have' icr-pending
# A local vector that would be a system-management interrupt, one that is masked, an INIT.
for value in 0x200 0x10200 0x500; do
	stops 0x835 'write to a register' msr-write msr=0x835 value=$value
done
for instruction in vmrun clgi skinit invd wbinvd efer-svme; do
	stops 0x0 'instruction that cells do not have' $instruction
done
stops 0x0 XSETBV xsetbv
stops 0x0 'triple fault' triple-fault

# Intercepted, but the cell gets it as on a bare machine.
crtos cell start probe $inmates/prober.elf --command-line step || fail 'step: start'
await "crtos log | grep -q 'probe: exception 1 error 0x0'" || fail 'step: no debug exception'
[ "$(cell probe)" = running ] || fail "step: $(cell probe)"
crtos cell stop probe || fail 'step: stop'

survives port port=0x71
survives msr-write msr=0x835 value=0x10400
survives icr-broadcast
survives icr-broadcast-id
survives icr-broadcast-nmi
survives hypercall
# Whatever CPU it names, its doorbells ring where Linux has said, which is CPU 0 for both cells.
rung() { awk -v cpu="$1" '/crtos-doorbell/ { sum += $(2 + cpu) } END { print sum + 0 }' /proc/interrupts; }
before=$(rung 0)
survives doorbell
crtos log | grep -q 'prober: rung \[0, 0, 0, 0, 0, 0, 0, 0\]' || fail 'doorbells'
rings=$(($(rung 0) - before))
# Those that come together are one.
[ $rings -ge 1 ] && [ $rings -le 8 ] || fail "8 doorbells rang $rings times on CPU 0"
[ "$(rung 1)" = 0 ] || fail "$(rung 1) doorbells rang on CPU 1"
survives cpuid
survives xsetbv-legal
crtos log | grep -q 'monitor 0 x2apic 1 hypervisor 1 svm 0' || fail 'CPUID'
crtos log | grep -q 'prober: \[-6, -6, -7\]' || fail 'hypercalls'

crtos cell doorbell other
for cpu in 0 1; do [ "$(taskset -c $cpu echo there)" = there ] || fail "Linux on CPU $cpu"; done
complaints | grep . && fail 'dmesg'
crtos down || fail 'down'
[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'CPUs online'
exit $failed
