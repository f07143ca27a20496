# SPDX-License-Identifier: MIT OR Apache-2.0
# What the attacks on an interrupt line of the realm have in common. ttyS1 is the realm's, and its
# other end, ttyS2, Linux's.
failed=0
fail() { echo "FAILED $*"; failed=1; }
# Of ttyS1, and one that nobody uses. The id of the realm's CPU.
pin=3 last_pin=23 apic=$(apic_id 3)
masked=$((1 << 16))

# asks TEXT: sends a text from the other end, and prints what comes back.
asks() {
	local answer
	printf '%s' "$1" >&9
	answer=$(timeout 60 head -c ${#1} <&9)
	[ "$answer" = "$1" ] || fail "'$1' is answered by '$answer'"
}

# begin: the realm has ttyS1, and a program that sends back whatever comes there.
begin() {
	attacker || exit 1
	before=$(attack redirect $pin)
	(($before & masked)) || fail "Linux uses the pin: $before"
	crtos up --cpus 3 --memory 256M --device ttyS1 || exit 1
	crtos log | grep -q 'realtime: has line 3, pin 3 of I/O APIC 0' || fail 'it has no line'
	[ "$(cat /sys/kernel/irq/3/actions)" = crtos ] || fail 'a driver of Linux may take the interrupt'
	stty -F /dev/ttyS2 raw -echo 115200
	exec 9<>/dev/ttyS2
	crtos run -- sh -c 'stty raw -echo 115200; exec cat' </dev/ttyS1 >/dev/ttyS1 &
	program=$!
	await 'crtos ps | grep -qw cat' || fail 'no program'
	asks 'before all'
	line=$(attack redirect $pin)
	echo "the line's entry: $line, before: $before"
	(($line & masked)) && fail 'the line is masked'
	dmesg --clear
}

# is_kept WHAT: the entry is the line's, and the line works.
is_kept() {
	[ "$(attack redirect $pin)" = "$line" ] || fail "$1: the entry is $(attack redirect $pin)"
}

# overwrite: Linux writes the entry, its halves, each mode of delivery, at each place where the
# chip has registers, and has a pin of its own raise what the line does.
overwrite() {
	local to mode value offset
	to=$((apic << 56))
	for mode in {0..7}; do
		for value in $((to | mode << 8 | 96)) $((mode << 8 | 2)) \
			$((0xff << 56 | mode << 8 | 0xd0)) \
			$((to | 1 << 11 | mode << 8 | masked)); do
			for offset in 0 256 3840; do
				attack redirect $pin "$value" $offset >/dev/null
				is_kept "$(printf 'entry %#x' "$value")"
			done
		done
	done
	for value in 0 $((apic << 24)) 0xffffffff $((1 << 16 | 1)); do
		attack upper $pin "$value" >/dev/null
		is_kept "upper half $value"
	done
	attack redirect $last_pin "$line" 0 >/dev/null
	value=$(attack redirect $last_pin)
	(($value & masked)) || fail "Linux has a pin raise what the line does: $value"
	crtos log | grep -q 'entry of an I/O APIC refused' || fail 'the hypervisor does not tell'
	asks 'after stores'
}

# calls: the hypervisor gives nobody what a cell has.
calls() {
	# The pin once more, the number once more, a pin and an I/O APIC that do not exist, a cell's
	# call.
	hypercall -5 22 0 7 $((pin << 16)) -1
	hypercall -5 22 0 3 $((last_pin << 16)) -1
	hypercall -1 22 0 7 $((240 << 16)) -1
	hypercall -1 22 0 7 $((last_pin << 16 | 31)) -1
	hypercall -6 23 3 96 "$apic" 0
	asks 'after calls'
}

# finish: nothing came that was not asked for, and Linux has the line as before.
finish() {
	crtos log | grep 'interrupt .* that nobody asked for' && fail 'an interrupt comes through'
	goes_on $program 'all of it'
	kill $program
	wait $program
	crtos down || fail down
	(($(attack redirect $pin) & masked)) || fail "the pin is not masked: $(attack redirect $pin)"
	[ -z "$(cat /sys/kernel/irq/3/actions)" ] || fail 'Linux does not get the interrupt back'
	stty -F /dev/ttyS1 raw -echo 115200 || fail 'Linux does not get the UART back'
	exec 8<>/dev/ttyS1
	cat <&8 >&8 &
	program=$!
	asks 'Linux again'
	kill $program
	rmmod attack
	complaints | grep -v DMAR && fail dmesg
	exit $failed
}
