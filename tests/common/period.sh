# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2034
# Attacks beside which a program in the realm keeps its period of 1 ms. Linux's common/victim.sh
# tells where private memory lies.

failed=0
fail() { echo "FAILED $*"; failed=1; }
# during COMMAND...
# Few CPUs work beside the realm's, most of the time.
during() { keeps_period 5000 "$@" || fail "$*"; }
# by_tables WAY...: entries of the IOMMU for memory, and tables of such, which are copied. They lead
# to Linux's own memory and to the realm's, where the device reads.
by_tables() {
	local way to at
	for way; do
		for to in "$page" "$private"; do
			# Not the same ones again, and where tables of few levels reach.
			address=$((address + (2 << 30)))
			case $way in
			pass | off | none) at=$((to)) ;;
			narrow) at=$((1 << 29 | to & 0x1fffff)) ;;
			*) at=$((address | to & 0x3fffffff)) ;;
			esac
			attack dma map "$way" $at "$to" >/dev/null && attack dma forget >/dev/null &&
				attack dma read $at >/dev/null || return 1
			attack dma undo >/dev/null || return 1
		done
	done
}
address=$((64 << 30))
# find_private: where the realm's kernel lies, which has come just now, and a page of Linux's.
find_private() {
	local blocks
	mapfile -t blocks < <(hidden)
	private=$((blocks[${#blocks[@]} / 2]))
	page=$(attack page)
}
