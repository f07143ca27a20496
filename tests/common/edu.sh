# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034
# Two devices, edu, of which a cell gets the second: its program there, `edu`, has it do what Linux
# asks for.

mapfile -t edus < <(grep -lx 0x11e8 /sys/bus/pci/devices/*/device | sed 's,/device$,,;s,.*/,,')
edu=${edus[1]:-}
# asked CELL WORD: a word of the block that the cell shares.
asked() {
	crtos cell shared "$1" --offset $((8 * $2)) --length 8 --raw | od -An -tu8 | tr -d ' '
}
# bytes_of NUMBER: its eight bytes, for printf.
bytes_of() {
	local i
	for i in {0..7}; do printf '\\x%02x' $(($1 >> 8 * i & 255)); done
}
# answered CELL NUMBER: has set `answer` if the program is done with that.
answered() {
	local number
	read -r answer number < <(crtos cell shared "$1" --offset 16 --length 16 --raw | od -An -tu8)
	[ "$number" = "$2" ]
}
# ask CELL COMMAND [FIRST [SECOND]]: what came of it; PATIENCE says how often to look.
ask() {
	local number answer
	number=$(($(asked "$1" 7) + 1))
	# shellcheck disable=SC2059
	printf "$(bytes_of "$2")$(bytes_of "${3:-0}")$(bytes_of "${4:-0}")$(bytes_of $number)" |
		crtos cell shared "$1" --offset 32 --write -
	crtos cell doorbell "$1"
	await "answered $1 $number" "${PATIENCE:-600}" || { echo silent; return 1; }
	printf '%#x\n' "$answer"
}
# What the program does.
read=1 write=2 messages=3 get=4 put=5 interrupt=6 entries=7
nothing=0xffffffffffffffff
# starts_edu CELL: the program hears the device, and the device copies.
starts_edu() {
	crtos cell start "$1" /usr/lib/crtos/inmates/edu.elf && await "[ \"\$(asked $1 1)\" != 0 ]" 600 &&
		[ "$(asked "$1" 1)" = 1 ]
}
# cell_has_edu: a cell gets it, hears it and finds its copies; says what does not hold.
cell_has_edu() {
	crtos cell create demo --cpus 3 --memory 16M >/dev/null || { fail 'no cell'; return; }
	if crtos device add "$edu" --cell demo --no-reset; then
		starts_edu demo || fail 'the cell does not hear its device, or that does not copy'
		[ "$(ask demo $interrupt 20)" = 0x14 ] || fail 'interrupts are lost'
		crtos device remove "$edu" || fail 'the device does not come back'
	else
		fail 'the cell does not get its device'
	fi
	crtos cell destroy demo || fail destroy
	crtos down || fail down
}
