# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034
# Configuration space of PCI functions, which are named by their directories in /sys.

# function_of FILE TEXT: the function whose file says so, the first one.
function_of() { dirname "$(grep -lx "$2" /sys/bus/pci/devices/*/"$1" | head -n 1)"; }
# get FUNCTION REGISTER BYTES
get() { echo $((0x$(od -An -tx"$3" -j"$(($2))" -N"$3" "$1/config" | tr -d ' '))); }
# put FUNCTION REGISTER BYTES VALUE: as drivers do.
put() {
	local bytes='' i
	for ((i = 0; i < $3; i++)); do bytes+=$(printf '\\x%02x' $(($4 >> 8 * i & 255))); done
	# shellcheck disable=SC2059
	printf "$bytes" | dd of="$1/config" bs="$3" seek=$(($2)) oflag=seek_bytes conv=notrunc status=none
}
# finds_message FUNCTION: where its capability of messages (MSI) is, with flags and data; fails if
# it has none.
finds_message() {
	capability=$(get "$1" 0x34 1)
	while [ "$(get "$1" "$capability" 1)" != 5 ]; do
		capability=$(get "$1" $((capability + 1)) 1)
		[ "$capability" -ge 64 ] || { echo 'no messages'; return 1; }
	done
	flags=$((capability + 2)) data=$((capability + 8))
	(($(get "$1" $flags 2) & 0x80)) && data=$((capability + 12))
	return 0
}
# aim FUNCTION ADDRESS DATA FLAGS: its message, after finds_message.
aim() {
	put "$1" $((capability + 4)) 4 "$2"
	((data == capability + 12)) && put "$1" $((capability + 8)) 4 0
	put "$1" $data 2 "$3"
	put "$1" $flags 2 "$4"
}
