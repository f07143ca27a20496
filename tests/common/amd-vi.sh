# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154
# What scripts with common/tables.sh have in common where the IOMMU is AMD's.

# Ways to forge one leaf: by a store of 64 bits, by that which Linux uses, by others. On a higher
# level, or of 64 KiB, or without a level; with all tables at once; one that was used before; in
# place of a table, and the opposite; in a table that is not linked meanwhile, or changes while it
# is linked. In one that is linked twice, on one level or on two, or was once more; with tables that
# another device had, too, or that name themselves; by the device itself.
stores=(mov cmpxchg halves bytes string xchg movnti add or)
leaves=(large huge sized skipped prepared moved grown split relinked raced)
odd=(twice levels half-gone lent circle device)
# By these the table is lost to the device until Linux tells the unit something.
strange=(bytes movnti add)
# Of no use without the hypervisor: no valid tables, those of a guest.
refused=(none nested)
# From the device's entry: other tables, of fewer levels, of more, with another domain; another
# table of devices; no translation, no valid entry.
contexts=(top narrow higher highest domain table pass off)
told=(top narrow higher highest domain table pass off none nested skipped)

# Of the unit its capabilities, and its exempted range.
unit=0xfed80000
registers=($((unit + 0x30)) $((unit + 0x28)))
everything=$((500 << 30))
expected=(-e AMD-Vi -e 'amd_iommu_report_page_fault: .* callbacks suppressed')

place() {
	case $1 in
	narrow) echo $(((tried % 200 << 21) + (1 << 29) + ($2 & 0x1fffff))) ;;
	pass | off | none) echo $(($2)) ;;
	*) echo $(((tried % 400 + 64 << 30) + ($2 & 0x3fffffff))) ;;
	esac
}
# Linux does not hear of faults: Linux 6.1 would never end, since bits that it clears are set in
# QEMU's register.
prepare() { attack unit $((0x18)) $(($(attack unit $((0x18))) & ~(1 << 3))) >/dev/null; }
attacked() { echo "${hypervisor[0]} ${hypervisor[-1]}"; }
others() { :; }
are_told() { :; }
