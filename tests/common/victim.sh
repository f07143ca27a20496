# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# Memory that Linux does not have, and a cell, the victim, that looks whether anybody wrote to its.

# Addresses of all blocks of 2 MiB that crtos' module hides.
hidden() {
	python3 - <<'PY'
import struct
flags, block = open("/proc/kpageflags", "rb"), 0
while data := flags.read(8 << 9):
    if all(value & 1 << 23 for (value,) in struct.iter_unpack("<Q", data)):
        print(hex(block << 21))
    block += 1
PY
}
# added BEFORE: what is hidden since.
added() { comm -13 <(sort <<<"$1") <(hidden | sort); }
# word: a word of the shared block of the victim
word() {
	crtos cell shared victim --length 272 --raw | od -An -v -tu8 -w8 | sed -n "$(($1 + 1))p" |
		tr -d ' '
}
# looked: waits until the victim has looked at all of its memory again; how many words are others'.
looked() {
	local before
	before=$(word 32)
	await '[ "$(word 32)" -ge $((before + 2)) ]' || echo silent
	word 33
}
