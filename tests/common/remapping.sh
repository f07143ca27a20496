# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154
# Entries of an IOMMU of Intel's kind for interrupts, and messages of the IOMMU itself, that name a
# CPU of the realm or could take any CPU away. None of them reaches its target; Linux's own go on,
# and all is Linux's again afterwards. The script says by its header in which mode the IOMMU is.

failed=0 event=()
fail() { echo "FAILED $*"; failed=1; }
# No driver uses so many.
index=65000
nmi=$((4 << 5))
present=1
logical=$((1 << 2))

# remapped LOW: a device's message by an entry of that low half; everybody may use the entry.
remapped() { attack remapped $index "$1" 0 >/dev/null || fail "no message by $(printf %#x "$1")"; }
# reaches: whether an NMI by an entry reaches CPU 3
reaches() {
	local before
	before=$(nmi_count 3)
	remapped $((present | nmi | apic << 32))
	handles_nmi 3 "$before"
}
# report_faults ADDRESS DATA: has the unit report faults by that message, and makes one.
report_faults() {
	attack unit $((0x38)) $((1 << 31)) >/dev/null
	attack unit $((0x3c)) "$2" >/dev/null
	attack unit $((0x40)) "$1" >/dev/null
	attack unit $((0x44)) 0 >/dev/null
	attack unit $((0x38)) 0 >/dev/null
	# Not present.
	remapped 0
	# What was reported, so that the next one is.
	attack unit $((0x22c)) $((1 << 31)) >/dev/null
	attack unit $((0x34)) 1 >/dev/null
}
# registers: all of the unit, but for head and tail of the queue, which move.
registers() {
	local offset
	for ((offset = 0; offset < 256; offset += 4)); do
		((offset / 16 == 8)) || echo "$offset $(attack unit $offset)"
	done
}
refusals() { crtos stats --json | gojq '.hypervisor.iommu_refusals'; }

# stays_on_first_cpu: Linux hears of faults on CPU 0, so that it does not move the message when
# CPU 3 leaves. It moves an interrupt when the next one comes.
stays_on_first_cpu() {
	local irq
	irq=$(awk '$NF == "dmar0" { sub(":", "", $1); print $1 }' /proc/interrupts)
	echo 0 >"/proc/irq/$irq/smp_affinity_list" || fail 'Linux does not move its message'
	is_on_first_cpu() {
		# Not present.
		remapped 0
		[ "$(cat "/proc/irq/$irq/effective_affinity_list")" = 0 ]
	}
	await is_on_first_cpu || fail 'the message of the unit does not move'
}

# attack_remapping: all of it, which ends the script.
attack_remapping() {
	apic=$(apic_id 3)
	window=$((0xfee00000 | apic << 12))
	attacker || exit 1
	# Whoever gets them expects NMIs.
	attack message 3 $((0x400)) >/dev/null
	stays_on_first_cpu
	# Of the message for faults; the one that turns it on comes last.
	message=($((0x3c)) $((0x40)) $((0x44)) $((0x38)))
	for register in "${message[@]}"; do event+=("$(attack unit "$register")"); done
	reaches || fail 'without the hypervisor no entry interrupts a CPU'
	before=$(nmi_count 3)
	report_faults $window $((0x400))
	handles_nmi 3 "$before" || fail 'without the hypervisor no message of the unit interrupts a CPU'
	native=$(registers)

	crtos up --cpus 3 --memory 256M || exit 1
	crtos stats | grep -q '^protected: ' || fail 'the unit is not taken over'
	[ "$(crtos stats --json | gojq '.hypervisor.iommus_taken')" = 1 ] || fail 'it is not counted'
	diff <(echo "$native") <(registers) || fail 'Linux finds other registers'
	starts_waking
	dmesg --clear
	[ "$(there)" = there ] || fail 'the realm does not run'
	before=$(nmi_exits 3) refused=$(refusals) tried=0
	cluster=$((apic >> 4 << 16 | 1 << (apic & 15)))
	for destination in $((apic << 32)) $((cluster << 32 | logical)) $((0xffffffff << 32)); do
		for vector in 2 18 32 96 240 255; do
			remapped $((present | destination | vector << 16))
			tried=$((tried + 1))
		done
		for mode in {1..7}; do
			remapped $((present | destination | mode << 5 | 96 << 16))
			tried=$((tried + 1))
		done
	done
	# Those take CPUs of Linux away: SMI, INIT, and what is reserved. Posted to memory.
	for mode in 2 3 5 6; do
		remapped $((present | mode << 5 | 96 << 16))
		tried=$((tried + 1))
	done
	remapped $((present | 1 << 15 | 0x1000 << 32))
	[ "$(there)" = there ] || fail 'the realm does not survive'
	for data in 96 $((0x400)) $((0x500)); do
		report_faults $window "$data"
	done
	[ "$(attack unit $((0x38)))" = 0x0 ] || fail 'Linux does not find its register'
	[ "$(nmi_exits 3)" = "$before" ] || fail "CPU 3 exits: $before before, $(nmi_exits 3) after"
	[ "$(crtos cell list --json | gojq -c '.[0].silent_cpus')" = '[]' ] || fail 'a CPU is gone'
	crtos log | grep 'interrupt .* that nobody asked for' && fail 'an interrupt comes through'
	[ $(($(refusals) - refused)) -ge $tried ] || fail "of $tried $(refusals) are refused, $refused before"
	crtos log | grep -q 'interrupt of a device refused' || fail 'the hypervisor does not tell'
	goes_on $program 'forged entries'
	for number in "${!message[@]}"; do
		attack unit "${message[number]}" $((event[number])) >/dev/null
	done
	# Linux turns remapping off and on, and has interrupts of the old format pass, and not.
	status=$(attack unit $((0x1c)))
	for command in $((status & ~(1 << 25))) $((status)) $((status | 1 << 23)) $((status)); do
		attack unit $((0x18)) $((command & 0x86800000)) >/dev/null
		remapped $((present | nmi | apic << 32))
	done
	[ "$(nmi_exits 3)" = "$before" ] || fail "CPU 3 exits when Linux changes states"
	# The program may not hear of its end then.
	[ $failed = 0 ] || exit 1
	wakes_on
	echo "$tried entries"
	crtos down || fail down
	reaches || fail 'Linux does not get the unit back'
	rmmod attack
	complaints | grep -v -e DMAR -e 'dmar_fault: .* callbacks suppressed' && fail dmesg
	exit $failed
}
