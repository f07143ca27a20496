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

# others_complain: complaints, but for faults of a cell's device, which QEMU's AMD-Vi reports to
# Linux though it is told not to.
others_complain() { complaints | grep -v -e 'AMD-Vi: ' -e amd_iommu_report_page_fault; }

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
	others_complain && fail dmesg
	exit $failed
}
