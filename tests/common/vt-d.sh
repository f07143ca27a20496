# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# What scripts with common/tables.sh have in common where the IOMMU is Intel's.

# Ways to forge one leaf: by a store of 64 bits, by that which Linux uses, by others. On a higher
# level; with all tables at once; one that was used before; in place of a table, and the opposite;
# in a table that is not linked meanwhile, or changes while it is linked. In one that is linked
# twice, on one level or on two, or was once more; with tables that another device had, too, or that
# name themselves; by the device itself.
stores=(mov cmpxchg halves bytes string xchg movnti add or)
leaves=(large huge prepared moved grown split relinked raced)
odd=(twice levels half-gone lent circle device)
# By these the table is lost to the device until Linux tells the unit something.
strange=(bytes string movnti add)

# Of the unit its capabilities, and its root table.
unit=0xfed90000
registers=($((unit + 8)) $((unit + 0x20)))
everything=$((1 << 45))
device=$(grep -l 0x11e8 /sys/bus/pci/devices/*/device | head -n 1 | sed 's/.*0000:\(.*\)\/device/\1/')
expected=(-e 'DMAR: DRHD: handling fault' -e 'dmar_fault: .* callbacks suppressed'
	-e "DMAR: \[DMA .*Request device \[$device\]")

place() {
	case $1 in
	narrow) echo $(((tried % 200 << 30) + (64 << 30) + ($2 & 0x3fffffff))) ;;
	pass | off) echo $(($2)) ;;
	*) echo $(((tried << 31) + (1 << 40) + ($2 & 0x3fffffff))) ;;
	esac
}
prepare() { :; }
attacked() { echo "${hypervisor[*]}"; }
others() {
	local seed faults ways reached
	for ((seed = 1; seed <= SEEDS; seed++)); do
		read -r faults ways reached < <(dma random $seed 1000 $((2 << 39)) "${at[victim]}")
		echo "random entries, seed $seed: $faults stores fault, $reached of $ways ways lead to the victim"
		((${ways:-0})) || fail 'no entry leads to the victim'
		[ "$EXPECT:$reached" = refused:0 ] || [ "$EXPECT:$reached" = "reached:$ways" ] ||
			fail "random entries, seed $seed"
		undo random
	done
	goes_on $program 'random entries'
}
are_told() {
	local faults
	faults=$(crtos stats --json |
		gojq --arg device "$device" '.hypervisor.device_faults[] | select(.device == $device) | .count')
	[ $EXPECT = reached ] || [ "${faults:-0}" -gt 0 ] || fail 'its faults are not counted'
	[ $EXPECT = reached ] || crtos log | grep -q "device $device: .* refused, reason" ||
		fail 'its faults are not told'
}
