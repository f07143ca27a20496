# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154
# Entries of an IOMMU of AMD's kind for interrupts and of devices, messages that would pass the
# IOMMU by, messages of the IOMMU itself, and memory to which it stores. None of them reaches its
# target; Linux's own go on, and all is Linux's again afterwards. The script says by its header in
# which mode the IOMMU is, and has common/victim.sh and common/space.sh.

inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
# A vector that Linux counts, and does nothing about. QEMU takes higher entries for other messages.
vector=$((0xf2)) index=500
nmi=$((0x400))
# Of an entry for interrupts: its destination is a logical one, it is posted, a mode of delivery.
logical=$((1 << 6)) posted=$((1 << 7)) mode_shift=2
# The word of an entry of the device table for interrupts: valid, and what it asks for.
pass=$((1 | 1 << 60)) remap=$((1 | 2 << 60))
# INIT, ExtINT, NMI, LINT0, LINT1.
all_kinds=$((1 | 7 << 56 | 3 << 62))
# Its first word: valid, with tables of three levels, and no right to read or write.
without_rights=$((3 | 3 << 9))
# Registers, of 64 bits.
log=0x10 control=0x18 exclusion=0x20 event=0x170 status=0x2020
# Of the unit's states: on, with commands, with messages of events; entries for interrupts of 128
# bits, not 32; its own messages are those of `event`, not of configuration space.
on=1 commands=$((1 << 12)) events=$((1 << 3)) long_entries=$((1 << 17)) own_extended=$((1 << 51))
# Commands.
wait_store=$((1 << 60 | 1)) wait_interrupt=$((1 << 60 | 2)) everything=$((8 << 60))

count() { awk '/^ *PIN:/ { print $5 }' /proc/interrupts; }
# long REGISTER [VALUE]: all 64 bits of it; writes them, the lower half first.
long() {
	local low high
	low=$(attack unit $(($1)) ${2+$(($2 & 0xffffffff))})
	high=$(attack unit $(($1 + 4)) ${2+$((($2 >> 32) & 0xffffffff))})
	echo $((high << 32 | low))
}
write() { long "$@" >/dev/null; }
tell() { attack tell $(($1)) $((${2-0})) >/dev/null || fail "no command $(printf %#x "$1")"; }
# entry DESTINATION VECTOR BITS: an entry for interrupts, its low half and its high one; one of 32
# bits has no high half.
entry() {
	if ((short)); then
		echo $((1 | $3 | ($1 & 0xff) << 8 | $2 << 16)) 0
	else
		echo $((1 | $3 | ($1 & 0xffffff) << 8)) $((($1 >> 24 & 0xff) << 56 | $2))
	fi
}
# remapped DESTINATION VECTOR BITS: a device's message by such an entry.
remapped() {
	local low high
	read -r low high < <(entry $(($1)) $(($2)) $((${3-0})))
	attack remapped $index "$low" "$high" >/dev/null || fail "no message by an entry: $*"
}
# passed FIRST THIRD DATA: a device's message to CPU 3 with these words of the device's entry.
passed() { attack passed $(($1)) $(($2)) $window $(($3)) >/dev/null || fail "no message by $*"; }
reaches() {
	local before
	before=$(count)
	"$@"
	await "[ \"\$(count)\" -gt $before ]" 100
}
strikes() {
	local before
	before=$(nmi_count 3)
	"$@"
	handles_nmi 3 "$before"
}
# other_table FIRST THIRD DATA: as `passed`, from another table of devices.
other_table() {
	attack table $(($1)) $(($2)) >/dev/null || fail 'no other table'
	attack alone $window $(($3)) >/dev/null
	sleep 0.02
	attack untable >/dev/null || fail "Linux's table does not come back"
}
# by_short: a message by the entry behind the four of a table that Linux has at `page`.
by_short() {
	attack passed -1 $((remap | page | 2 << 1)) 0 4 >/dev/null ||
		fail 'no message behind the end'
}
# own_message WORD: the unit sends that message of its own.
own_message() { write $event $(($1)) && tell $wait_interrupt; }
# own_in_space DATA: it sends CPU 3 that message of configuration space.
own_in_space() { aim "$unit" $((0xfee00000 | window)) "$1" 1 && tell $wait_interrupt; }
# quiet: Linux does not hear of events from now on, since it would look for them in its own log,
# and Linux 6.1 would never end: bits that it clears are set in QEMU. loud: it does again, and has
# its log.
quiet() {
	old_log=$(long $log)
	write $control $((states & ~events))
	sleep 0.5
}
loud() {
	write $status $((0x67))
	write $log "$old_log"
	write $control "$states"
}
# stores ADDRESS VALUE: the unit does, when it has carried a command out.
stores() { tell $((wait_store | $1)) "$2"; }
# logs ADDRESS: the unit logs events in the page there, the device's accesses without a right to. In
# what is logged the device's number comes first.
logs() {
	write $status $((0x67))
	write $log $(($1 | 8 << 56))
	attack table $without_rights $remap >/dev/null || fail 'no other table'
	attack dma read $((0x7000000000)) >/dev/null || fail 'no access'
	attack untable >/dev/null || fail "Linux's table does not come back"
}
word_at() { attack dma peek $((page + $1)); }
store_at() { [ "$(attack dma poke $((page + $1)) $(($2)))" = 0 ] || fail "nothing is stored"; }
# But for heads and tails, and Linux's messages, which move.
registers() {
	local offset
	for offset in {0..56..8} 8224; do
		echo "$offset $(long $offset)"
	done
}

# works_natively: each way reaches its target where nobody is in the way.
works_natively() {
	local low high
	# QEMU knows entries of fixed and of lowest priority only, and none that pass.
	reaches remapped $apic $vector || fail 'natively no entry interrupts a CPU'
	strikes passed -1 0 $nmi || fail 'natively no message passes'
	strikes passed -1 $all_kinds $nmi || fail 'natively no message of that kind passes'
	strikes passed 0 0 $nmi || fail 'natively no message passes without an entry'
	strikes other_table -1 0 $nmi || fail 'natively there is no other table'
	if ((by_register)); then
		reaches own_message $((apic << 8 | vector << 32)) ||
			fail 'natively the unit sends no message'
		write $event "$old_event"
	else
		strikes own_in_space $nmi || fail 'natively the unit sends no message'
		aim "$unit" "${old_own[@]}"
	fi
	# Four entries, and a fifth one behind them.
	read -r low high < <(entry $apic $vector 0)
	store_at $((4 * size)) "$low"
	((short)) || store_at $((4 * size + 8)) "$high"
	reaches by_short || fail 'natively a table ends'
	stores $((page + 128)) 0x5ec2
	[ "$(word_at 128)" = 0x5ec2 ] || fail 'natively nothing is stored'
	store_at 0 0
	quiet
	logs "$page"
	[ "$(word_at 0)" != 0x0 ] || fail 'natively nothing is logged'
	loud
	store_at 0 0
}

refusals() { crtos stats --json | gojq '.hypervisor.iommu_refusals'; }
survived() {
	[ "$(nmi_exits 3)" = "$exits" ] || fail "$1: CPU 3 exits: $exits before, $(nmi_exits 3) after"
	[ "$(crtos cell list --json | gojq -c 'map(.silent_cpus) | add')" = '[]' ] ||
		fail "$1: a CPU is gone"
	goes_on $program "$1"
}
counted() {
	[ $(($(refusals) - refused)) -ge $tried ] || fail "$1: of $tried $(refusals) are refused"
	refused=$(refusals) tried=0
}

# forged_entries: they name CPU 3 or all of them, or take CPUs away.
forged_entries() {
	local destination kind number mode
	for destination in "$apic 0" "$cluster $logical" "$((0xffffffff)) 0"; do
		read -r destination kind <<<"$destination"
		for number in 2 18 32 96 240 255; do
			remapped "$destination" $number "$kind"
			tried=$((tried + 1))
		done
		for mode in {1..7}; do
			remapped "$destination" 96 $((kind | mode << mode_shift))
			tried=$((tried + 1))
		done
		remapped "$destination" 96 $((kind | posted))
		tried=$((tried + 1))
	done
	# Those take CPUs of Linux away: SMI, INIT, and what is reserved.
	for mode in 2 3 5 6; do
		remapped 0 96 $((mode << mode_shift))
		tried=$((tried + 1))
	done
	survived 'forged entries'
	counted 'forged entries'
	by_short
	# A table where none of Linux's is, and none at all.
	for table in "${private[0]}" "${victim[0]}" $((0xfed80000)) $((1 << 51)); do
		attack passed -1 $((remap | table | 11 << 1)) 0 4 >/dev/null || fail 'no message'
	done
	survived 'tables elsewhere'
}

# passing_messages: everything may pass, as no remapping, as another kind of it, without an entry,
# from another table.
passing_messages() {
	local word data
	refused=$(refusals) tried=0
	for word in 0 $pass $all_kinds $((all_kinds | pass)) $((all_kinds | remap)) \
		$((3 << 60 | 1)); do
		for data in 96 $((0x100 | 96)) $nmi $((0x500)) $((0x700)); do
			passed -1 "$word" "$data"
			passed 0 "$word" "$data"
			other_table 0 "$word" "$data"
		done
		((word & 1 << 61 || word == all_kinds)) || tried=$((tried + 15))
	done
	survived 'messages that pass'
	counted 'messages that pass'
}

# meanwhile REGISTER VALUE DATA: a device's message while Linux's register is another one. That of
# other devices would be lost for ever, so it takes no longer than necessary.
meanwhile() {
	attack while $(($1)) $(($2)) $window $(($3)) >/dev/null || fail "register $1 is not $2"
}
other_registers() {
	local table other
	# The table of devices is somebody else's, or is none.
	for table in "${private[0]}" "${victim[0]}" $((0xfed80000)) $((1 << 51)); do
		meanwhile 0 $((table | 0x1ff)) $nmi
	done
	survived 'other tables of devices'
	# The unit is off for Linux, without its commands as well; entries are of the other length.
	for other in $((states & ~on)) $((states & ~(on | commands))) 0 $((states ^ long_entries)) \
		$((-1 & ~(3 << 59 | 1 << 50))); do
		meanwhile $control "$other" $nmi
		meanwhile $control "$other" 96
	done
	survived 'other states'
}

# own_messages: the unit's, to CPU 3 and to all; of another kind.
own_messages() {
	local word message
	refused=$(refusals) tried=0
	if ((by_register)); then
		for word in $((apic << 8 | vector << 32)) $((4 | cluster << 8 | vector << 32)) \
			$((0xff << 56 | 0xffffff << 8 | vector << 32)) \
			$((apic << 8 | vector << 32 | 1 << 40)); do
			own_message "$word"
			[ "$(long $event)" = "$word" ] || fail 'Linux does not find its message'
			tried=$((tried + 1))
		done
		write $event "$old_event"
	else
		for message in $vector $nmi $((0x500)); do own_in_space "$message"; done
	fi
	survived 'messages of the unit'
	counted 'messages of the unit'
}

# own_stores: what the unit stores, and where it logs.
own_stores() {
	local block offset found
	quiet
	for block in "${victim[@]}" "${private[@]:0:4}" $((0xfed00000)); do
		for offset in 0 $((0x1000)) $((0x1ff000)); do
			stores $((block + offset)) 0x5ec2
		done
		logs $((block))
		# The log does not run.
		[ $(($(long $status) & 8)) = 0 ] || fail "the log runs at $block"
	done
	stores $((page + 128)) 0x6ec2
	[ "$(word_at 128)" = 0x6ec2 ] || fail 'nothing is stored for Linux'
	# What is exempted: all.
	write $((exclusion + 8)) $((0xffffffffff000))
	write $exclusion 3
	for block in "${victim[0]}" "${private[0]}"; do
		found=$(attack dma read $((block)))
		[[ $found = nothing || $found = 0x0 ]] || fail "$found is read at $block"
	done
	[ "$(long $exclusion)" = 3 ] || fail 'Linux does not find its range'
	write $exclusion 0
	write $((exclusion + 8)) 0
	loud
	[ $(($(long $status) & 8)) != 0 ] || fail 'the log does not run any more'
}

# other_commands: some that are somebody else's.
other_commands() {
	local buffer head block
	buffer=$(long 8) head=$(attack unit $((0x2000)))
	for block in "${victim[0]}" "${private[0]}"; do
		write 8 $((block | 9 << 56))
		attack unit $((0x2008)) 64 >/dev/null
		[ "$(attack unit $((0x2000)))" = 0x0 ] || fail 'commands of a cell are carried out'
	done
	write $control $((states & ~commands))
	write 8 "$buffer"
	attack unit $((0x2000)) $((head)) >/dev/null
	attack unit $((0x2008)) $((head)) >/dev/null
	write $control "$states"
	tell $everything
}

# begin: how the unit and the CPUs are.
begin() {
	apic=$(apic_id 3)
	window=$((apic << 12))
	attacker || exit 1
	page=$(attack page)
	unit=$(function_of class 0x080600)
	finds_message "$unit" || exit 1
	old_own=("$(get "$unit" $((capability + 4)) 4)" "$(get "$unit" $data 2)"
		"$(get "$unit" $flags 2)")
	old_event=$(long $event) states=$(long $control)
	short=$(((states & long_entries) == 0)) size=$((short ? 4 : 16))
	by_register=$(((states & own_extended) != 0))
	# CPU 3 as a logical destination: in x2APIC mode, or in flat mode.
	cluster=$((apic >> 4 << 16 | 1 << (apic & 15)))
	((by_register)) || cluster=$((1 << apic))
	# Whoever gets them expects NMIs.
	attack message 3 $nmi >/dev/null
	# The device fills its memory when it reads first.
	attack dma read "$page" >/dev/null || fail 'the device does not read'
}

# attack_remapping BITS: all of it, which ends the script; entries for interrupts have so many bits.
attack_remapping() {
	local before native
	begin
	[ $((8 * size)) = "$1" ] || fail "entries have $((8 * size)) bits"
	works_natively
	native=$(registers)

	modprobe crtos
	before=$(hidden)
	crtos up --cpus 3 --memory 256M || exit 1
	mapfile -t private < <(added "$before")
	before=$(hidden)
	crtos cell create victim --cpus 2 --memory 8M >/dev/null || exit 1
	mapfile -t victim < <(added "$before")
	crtos cell start victim $inmates/prober.elf --command-line keep || exit 1
	[ "$(looked)" = 0 ] || fail 'the victim does not run'
	crtos stats | grep -q '^protected: ' || fail 'the unit is not taken over'
	[ "$(crtos stats --json | gojq '.hypervisor.iommus_taken')" = 1 ] || fail 'it is not counted'
	diff <(echo "$native") <(registers) || fail 'Linux finds other registers'
	starts_waking
	dmesg --clear
	[ "$(there)" = there ] || fail 'the realm does not run'
	exits=$(nmi_exits 3) refused=$(refusals) tried=0

	forged_entries
	passing_messages
	other_registers
	own_messages
	own_stores
	other_commands
	[ "$(looked)" = 0 ] || fail "the victim's memory changed"
	survived 'stores of the unit'
	crtos log | grep 'interrupt .* that nobody asked for' && fail 'an interrupt comes through'
	crtos log | grep -q 'interrupt of a device refused' || fail 'the hypervisor does not tell'
	diff <(echo "$native") <(registers) || fail 'Linux finds other registers afterwards'
	crtos cell destroy victim || fail destroy

	# The program may not hear of its end then.
	[ $failed = 0 ] || exit 1
	wakes_on
	crtos down || fail down
	diff <(echo "$native") <(registers) || fail 'the unit has other registers'
	reaches remapped $apic $vector || fail 'Linux does not get the unit back'
	strikes passed -1 0 $nmi || fail 'messages do not pass as Linux says'
	rmmod attack
	complaints | grep -v -e AMD-Vi -e 'ivhd0' && fail dmesg
	exit $failed
}
