# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash disable=SC2154
# Linux's vfio-pci has functions, as for its own programs.

driver() { basename "$(readlink "/sys/bus/pci/devices/$1/driver")"; }

# drives_by_vfio FUNCTION: vfio-pci has it, and there is a file of its group.
drives_by_vfio() {
	local group
	modprobe -a vfio-pci crtos || return 1
	[ ! -e "/sys/bus/pci/devices/$1/driver" ] || echo "$1" >"/sys/bus/pci/devices/$1/driver/unbind"
	echo vfio-pci >"/sys/bus/pci/devices/$1/driver_override"
	echo "$1" >/sys/bus/pci/drivers_probe
	group=$(basename "$(readlink "/sys/bus/pci/devices/$1/iommu_group")")
	await "[ -c /dev/vfio/$group ]" || { fail "no group of $1"; return 1; }
}

# drives_no_more FUNCTION: the driver that it had may have it again.
drives_no_more() {
	echo "$1" >"/sys/bus/pci/devices/$1/driver/unbind"
	echo >"/sys/bus/pci/devices/$1/driver_override"
	echo "$1" >/sys/bus/pci/drivers_probe 2>/dev/null
}

# alike_by_vfio: tests/abi/vfio.c under Linux, and then in the realm, which has the function; ends
# the script.
alike_by_vfio() {
	cd "$(mktemp -d)" || exit 1
	local program=/usr/lib/crtos-tests/abi/vfio
	failed=0
	fail() { echo "FAILED $*"; failed=1; }
	export FUNCTION=$edu
	drives_by_vfio "$edu" || exit 1
	natively 300 $program
	dmesg --clear
	crtos up --cpus 3 --memory 256M || exit 1
	crtos device add "$edu" --no-reset || fail add
	[ "$(driver "$edu")" = vfio-pci ] || fail "its driver is $(driver "$edu")"
	alike 400 $program
	crtos device remove "$edu" || fail remove
	# Linux's own programs have it again.
	timeout 100 $program the_device_copies_to_and_from_memory >/dev/null 2>&1 ||
		fail 'Linux after the realm'
	crtos down || fail down
	drives_no_more "$edu"
	complaints | grep -v -e 'DMAR: ' -e 'AMD-Vi: ' | grep . && fail dmesg
	exit $failed
}

# no_exits_meanwhile CHILD CPU: the program CHILD, which prints in `out` when it began and ended
# with what counts, causes no exit of CPU meanwhile.
no_exits_meanwhile() {
	local before after count start end
	while [ -d "/proc/$1" ]; do
		read -r before _ </proc/uptime
		count=$(crtos stats --json | jq -c ".cpus[] | select(.cpu == $2) | .exits")
		read -r after _ </proc/uptime
		echo "${before/./}0000000 ${after/./}0000000 $count"
		sleep 0.2
	done >counted
	wait "$1" || { echo 'the program failed'; return 1; }
	read -r _ _ _ start end <out
	# The last count before it, and the first behind.
	read -r before after < <(awk -v start="$start" -v end="$end" '
		$2 + 10000000 < start { before = $3 }
		$1 > end + 10000000 && !after { after = $3 }
		END { print before, after }' counted)
	if [ -z "$before" ] || [ "$before" != "$after" ]; then
		echo "$before, then $after"
		return 1
	fi
}
