# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Entries that Linux forges in its tables of the IOMMU, of either kind, so that a device reads and
# writes memory of the hypervisor, of a cell and of the realm, and registers that are the
# hypervisor's. None of them gets there, whatever is forged and however; Linux's own DMA goes on.
#
# The script has the ways to forge in `stores`, `leaves`, `odd` and `contexts`; in `strange` those
# by which the table is lost to the device until Linux tells the unit something, in `refused` those
# of no use without the hypervisor, in `told` those of which the unit is told. With `stride` it has
# one block of so many be looked at. It says which `registers` of the unit are read and written,
# where `everything` is mapped, which complaints of Linux's are `expected`, and by functions: `place
# WAY TO` for an address of the device, `prepare`, which blocks are `attacked`, `others` for further
# attacks, and whether faults `are_told`.

# What is expected of attacks: "refused", or "reached", which shows that they work.
EXPECT=${EXPECT:-refused}
# Further options of `crtos up`.
read -ra UP <<<"${UP:-}"
inmates=/usr/lib/crtos/inmates
failed=0
fail() { echo "FAILED $*"; failed=1; }
# Of the I/O APIC that which selects others; of the timer its capabilities, and the message of
# comparator 2.
io_apic=0xfec00000
timer=0xfed00000

# choose WAYS FEW: the ways that are tried, and of the hidden blocks the one of so many: a few, or
# all with --full. Or the ways are chosen by whoever knows that some of them are noticed.
choose() {
	local few=$2
	if [ -n "${EVERY:-}" ]; then few=$1 stride=1 SEEDS=8; else stride=4 SEEDS=3; fi
	read -ra WAYS <<<"${WAYS:-$few}"
}

# Ways by which the hypervisor and the realm are attacked as well; nothing for all but `stores`.
broad=()
# seldom: what does not depend on the mode is tried less often than in others.
seldom() {
	[ -z "${EVERY:-}" ] || return
	stride=16 SEEDS=2 registering=(mov off) broad=(top root)
	attacked() { echo "${hypervisor[0]} ${hypervisor[-1]}"; }
}

# Where the hypervisor's report lies, which Linux may read only.
report() {
	python3 - <<'PY'
import struct
symbols = {}
for line in open("/proc/kallsyms"):
    address, _, name = line.split()[:3]
    if name in ("report_pages", "vmemmap_base"):
        symbols[name] = int(address, 16)
memory = open("/proc/kcore", "rb", buffering=0)
start = memory.read(64)
count, place = struct.unpack_from("<H", start, 56)[0], struct.unpack_from("<Q", start, 32)[0]
memory.seek(place)
pieces = [struct.unpack("<IIQQQQQQ", memory.read(56)) for _ in range(count)]
def word(name):
    for _, _, offset, address, _, size, _, _ in pieces:
        if address <= symbols[name] < address + size:
            memory.seek(offset + symbols[name] - address)
            return struct.unpack("<Q", memory.read(8))[0]
print(hex((word("report_pages") - word("vmemmap_base")) // 64 << 12))
PY
}
disk() { dd if=/dev/nvme0n1 iflag=direct bs=64k count=16 status=none | md5sum; }

# dma COMMAND...: what the module answers; "broken" is what nobody expects.
dma() { attack dma "$@" || { echo "FAILED dma $*" >&2; echo broken; return 1; } }
# By these ways registers are attacked. QEMU lets no entry of 1 GiB lead to where messages are
# stored, which is near.
registering=(mov large prepared top pass off)
tried=0
# forge WAY TO: sets `address`, at which the device finds TO then. Fails if a store faults.
forge() {
	local answer ordinary=mov
	tried=$((tried + 1))
	# Never used before, and the same within the largest piece.
	address=$(place "$1" "$2")
	if [ "$1" = moved ]; then
		attack dma map $ordinary "$address" $((page ^ 4096)) >/dev/null
		attack dma read "$address" >/dev/null
		set -- $ordinary "$2" forget
	fi
	answer=$(dma map "$1" "$address" "$2")
	[[ " ${told[*]} " != *" $1 "* ]] || set -- "$1" "$2" forget
	[ $# = 2 ] || dma forget >/dev/null
	case $answer in
	0) ;;
	-14) return 1 ;;
	*) fail "way $1 to $(printf %#x "$2") is not gone: $answer" ;;
	esac
}
undo() { [ "$(dma undo)" = 0 ] || fail "way $1 does not end"; }
reads() { dma read $(($1)); }
is_nothing() { [[ $1 = nothing || $1 = 0x0 ]]; }
changed=0x6675676974697665

# An ordinary page of Linux, to show what a way is worth. Where attacks are refused a store may
# fault, and what Linux never does need not lead anywhere.
control() {
	local way=$1 value=$((0x1000 + tried))
	forge "$way" "$page" || { echo "way $way faults"; undo "$way"; return; }
	dma write $address $value >/dev/null
	if [ $(($(dma peek "$page"))) != $value ]; then
		case "$EXPECT: ${odd[*]} ${strange[*]} ${refused[*]} " in
		refused:*" $way "*) echo "way $way leads nowhere" ;;
		*) fail "way $way does not lead to Linux's own memory" ;;
		esac
	elif [ $(($(reads $address))) != $value ]; then
		fail "way $way leads to Linux's memory for writes alone"
	fi
	undo "$way"
}
# attack_memory WAY NAME: what stands there, and a word that nobody uses.
attack_memory() {
	local way=$1 name=$2 to found
	for to in ${at[$name]}; do
		if forge "$way" "$to"; then
			found=$(reads $address)
			if [ $EXPECT = refused ]; then
				is_nothing "$found" || fail "way $way reads $name: $found"
				dma write $address $changed >/dev/null
			elif [ "$found" != "${known[$name]}" ]; then
				fail "way $way does not read $name: $found, not ${known[$name]}"
			fi
		elif [ $EXPECT = reached ]; then
			fail "way $way to $name faults"
		fi
		undo "$way"
	done
	[ $EXPECT = reached ] || return
	forge "$way" "${spare[$name]}" || fail "way $way to $name faults"
	to=$(reads $address)
	dma write $address $changed >/dev/null
	found=$(reads $address)
	[ "$found" = $changed ] || fail "way $way does not write $name: $found"
	if [ "$name" = victim ]; then
		[ "$(looked)" = 1 ] || fail "way $way: the victim does not see it"
	fi
	dma write $address $((to)) >/dev/null
	undo "$way"
}
# attack_register WAY NAME READ WRITTEN VALUE: a register to read, another one to write.
attack_register() {
	local way=$1 name=$2 known before found
	known=$(dma peek "$3")
	if forge "$way" "$3"; then
		found=$(reads $address)
		if [ $EXPECT = refused ]; then
			is_nothing "$found" || fail "way $way reads registers of the $name: $found"
		elif [ "$found" != "$known" ]; then
			fail "way $way does not read registers of the $name: $found, not $known"
		fi
	fi
	undo "$way"
	before=$(dma peek "$4")
	forge "$way" "$4" || { undo "$way"; return; }
	dma write $address "$5" >/dev/null
	found=$(dma peek "$4")
	if [ $EXPECT = refused ]; then
		[ "$found" = "$before" ] || fail "way $way writes registers of the $name"
	else
		[ "$found" != "$before" ] || fail "way $way does not write registers of the $name"
		dma write $address $((before)) >/dev/null
	fi
	undo "$way"
}

# is_unremapped: the unit confines addresses, and not interrupts, which is told in one line.
is_unremapped() {
	local found line
	found=$(crtos stats --json |
		gojq -c '.hypervisor | [.iommus_taken, .iommus_confining, .iommus_remapping]')
	[ "$found" = '[1,1,0]' ] || fail "the unit is not taken over for addresses: $found"
	line='not protected: .* interrupt CPUs of cells, but not reach their memory; .* remap interrupts$'
	[ "$(crtos stats | grep -c "^$line")" = 1 ] || fail 'stats do not tell'
	crtos check | grep -q 'memory will be confined, their interrupts not' ||
		fail 'the check does not tell'
}
# all_memory: two entries for all of it, which the device has used, so that the unit knows them.
all_memory() {
	local half
	for half in 0 $((1 << 30)); do
		[ "$(dma map huge $((everything + half)) $half)" = 0 ] || fail 'no entry for all memory'
		reads $((everything + half + (page & 0xfff))) >/dev/null
	done
	[ "$(reads $((everything + page)))" = "$(dma peek "$page")" ] || fail 'it is not all memory'
}
# meets WHEN: makes a cell while, or after, the device reaches all memory, and looks into its
# blocks.
meets() {
	local when=$1 before found block offset seen=0
	before=$(hidden)
	if ! crtos cell create victim --cpus 2 --memory 8M >/dev/null; then
		[ $EXPECT = refused ] || fail "$when: no cell"
		# They were in the way, and are gone.
		undo "$when"
		crtos cell create victim --cpus 2 --memory 8M >/dev/null || fail "$when: no cell later"
		crtos cell destroy victim || fail "$when: destroy"
		return
	fi
	[ -z "${victim:-}" ] || added "$before" | grep -qxFf <(printf '%s\n' "${victim[@]}") ||
		echo "$when: the victim lies elsewhere than before"
	mapfile -t victim < <(added "$before")
	crtos cell start victim $inmates/prober.elf --command-line keep || fail "$when: start"
	[ "$(looked)" = 0 ] || fail "$when: the victim does not run"
	while read -r block; do
		for offset in 0 0x1ff000; do
			found=$(reads $((everything + block + offset)))
			is_nothing "$found" && continue
			seen=$((seen + 1))
			[ $EXPECT = reached ] || fail "$when: $found is read at $block"
		done
	done < <(added "$before")
	[ $EXPECT = refused ] || [ $seen -ge 4 ] || fail "$when: $seen words are read"
	undo "$when"
	crtos cell destroy victim || fail "$when: destroy"
}

# attack_by_tables: all of it, which ends the script.
attack_by_tables() {
	modprobe nvme || exit 1
	await '[ -b /dev/nvme0n1 ]' || fail 'no disk'
	dd if=/dev/urandom of=/dev/nvme0n1 oflag=direct bs=64k count=16 status=none
	sum=$(disk)
	attacker || exit 1
	prepare
	page=$(attack page)
	[ "$(attack dma linux)" = fine ] || fail 'the device does not work'
	dma hold $changed >/dev/null
	for way in "${WAYS[@]}"; do
		[[ " ${refused[*]} " = *" $way "* ]] || EXPECT=reached control "$way"
	done

	# The hypervisor's own blocks are those that stay when there is no cell.
	before=$(hidden)
	all_memory
	meets 'entries for all memory at the launch'
	mapfile -t hypervisor < <(added "$before")
	before=$(hidden)
	# Linux does not translate for the device when the hypervisor takes the unit.
	EXPECT=reached forge pass "$page"
	crtos up --cpus 3 --memory 128M "${UP[@]}" || exit 1
	mapfile -t realm < <(added "$before")
	for block in "${hypervisor[@]}" $(added "$before"); do
		found=$(reads "$block")
		[ $EXPECT = reached ] || is_nothing "$found" || fail "as before the launch: $found at $block"
	done
	undo pass
	before=$(hidden)
	crtos cell create victim --cpus 2 --memory 8M >/dev/null || exit 1
	mapfile -t victim < <(added "$before")
	crtos cell start victim $inmates/prober.elf --command-line keep || exit 1
	echo "blocks: hypervisor ${#hypervisor[@]}, realm ${#realm[@]}, victim ${#victim[@]}"
	[ $((${#hypervisor[@]} && ${#realm[@]} && ${#victim[@]} == 4)) = 1 ] || fail 'blocks'
	[ "$(looked)" = 0 ] || fail 'the victim does not run'
	starts_waking
	[ "$(there)" = there ] || fail 'the realm does not run'
	dmesg --clear
	before=$(nmi_exits 3)

	# By the first way, all that is hidden, or a block of so many; nobody changes what is looked
	# at.
	declare -A known spare at
	for name in hypervisor realm victim; do
		declare -n blocks=$name
		echo "$name: ${#blocks[@]} blocks at ${blocks[*]:0:4}"
		for ((number = 0; number < ${#blocks[@]}; number++)); do
			((number % stride && number + 1 < ${#blocks[@]})) && continue
			block=${blocks[number]}
			for offset in 0 0x1ff000; do
				to=$((block + offset))
				forge "${WAYS[0]}" $to
				found=$(reads $address)
				if [ $EXPECT = refused ]; then
					is_nothing "$found" || fail "$name: $found is read at $(printf %#x $to)"
					dma write $address $changed >/dev/null
				elif ((found)); then
					known[$name]=$found at[$name]=$to
					[ $name = victim ] && spare[$name]=$to
				elif ((offset)) && [ $name != victim ]; then
					spare[$name]=$to
				fi
				undo "${WAYS[0]}"
			done
		done
		[ -z "${at[$name]:-}" ] || echo "$name: ${known[$name]} at $(printf %#x "${at[$name]}")"
		[ -n "${spare[$name]:-}" ] || spare[$name]=${at[$name]:-0}
	done
	if [ $EXPECT = refused ]; then
		# Where something stands: blocks of the hypervisor, the second of the realm's, which
		# has the kernel, and of the victim's first one the last page.
		at[hypervisor]=$(attacked)
		at[realm]=${realm[1]}
		at[victim]=$((victim[0] + 0x1ff000))
	fi
	if [ $EXPECT = reached ]; then
		for name in hypervisor realm victim; do
			((known[$name])) || fail "nothing is read of $name"
		done
		[[ ${known[victim]} = 0x5ec2e701* ]] || fail "what is read of the victim is not its own"
	fi

	for way in "${WAYS[@]}"; do
		control "$way"
		attack_memory "$way" victim
		case " ${broad[*]:-${leaves[*]} ${odd[*]} ${contexts[*]} ${refused[*]}} " in
		*" $way "*)
			attack_memory "$way" hypervisor
			attack_memory "$way" realm
			;;
		esac
		case " ${registering[*]} " in
		*" $way "*)
			attack_register "$way" unit "${registers[@]}" 0x12345000
			attack_register "$way" timer $timer $((timer + 0x150)) 0x1234
			attack_register "$way" 'I/O APIC' $io_apic $io_apic 0x3
			;;
		esac
		goes_on $program "way $way"
		[ "$(looked)" = 0 ] || fail "way $way: the victim's memory changed"
	done
	others
	# What is taken for a table is not Linux's, or nobody's.
	for to in $unit $((1 << 40)) $((0xfffff << 32)) "${hypervisor[0]}" "${realm[1]}" "${victim[0]}"; do
		forge foreign "$to"
		dma read $address >/dev/null
		dma write $address $changed >/dev/null
		undo foreign
		forge mov "$to"
		undo mov
	done
	goes_on $program 'foreign tables'
	# What Linux may only read is no more for having been a table for a moment.
	report=$(report)
	first=$(dma peek "$report")
	[ "$(dma poke "$page" 1)" = 0 ] || fail 'Linux does not write to its own memory'
	forge foreign "$report"
	undo foreign
	[ "$(dma poke "$report" 1)" = 0 ] && fail "Linux writes to the hypervisor's report"
	[ "$(dma peek "$report")" = "$first" ] || fail 'the report has changed'
	are_told
	# What devices reach, or did a moment ago, becomes a cell's.
	[ "$(looked)" = 0 ] || fail "the victim's memory changed"
	crtos cell destroy victim || fail destroy
	# used: the device reads what was the victim's, which is Linux's now and a cell's again
	# soon.
	used() { for block in "${victim[@]}"; do reads $((everything + block)) >/dev/null; done; }
	all_memory
	used
	meets 'entries for all memory'
	all_memory
	used
	[ "$(dma revert)" = 0 ] || fail 'the entries do not go'
	meets 'old entries for all memory'
	[ "$(there)" = there ] || fail 'the realm does not survive'
	[ "$(nmi_exits 3)" = "$before" ] || fail "CPU 3 exits: $before before, $(nmi_exits 3) after"
	[ "$(crtos cell list --json | gojq -c 'map(.silent_cpus) | add')" = '[]' ] || fail 'a CPU is gone'
	[ "$(attack dma linux)" = fine ] || fail 'the device does not work any more'
	[ "$(disk)" = "$sum" ] || fail 'the disk has other contents'

	# The program may not hear of its end then.
	[ $failed = 0 ] || exit 1
	wakes_on
	echo "$tried entries"
	crtos down || fail down
	[ "$(attack dma linux)" = fine ] || fail 'the device does not work afterwards'
	EXPECT=reached control mov
	[ "$(disk)" = "$sum" ] || fail 'the disk has other contents afterwards'
	rmmod attack
	complaints | grep -v "${expected[@]}" | grep . && fail dmesg
	exit $failed
}
