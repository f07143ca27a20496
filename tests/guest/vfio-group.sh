#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Two functions that the IOMMU does not tell from each other, which vfio-pci has: a program finds
# both in their group, in Linux and then in the realm, which gets both or none.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# pair: yes
# uses: alike vfio
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
programs=/usr/lib/crtos-tests/abi
export FUNCTION=0000:00:18.0 SIBLING=0000:00:18.1
# linux_has: a program of Linux has both, and no fault is logged.
linux_has() {
	timeout 100 $programs/vfio-group each_function_is_a_device_of_its_own >/dev/null 2>&1
}
has() { crtos device list --json | gojq -r '[.[].function] | sort | join(" ")'; }
drives_by_vfio $FUNCTION && drives_by_vfio $SIBLING || exit 1
natively 100 $programs/vfio-group
natively 300 $programs/vfio
dmesg --clear
crtos up --cpus 3 --memory 256M || exit 1

# Whichever is asked for, both go and come back.
for one in $FUNCTION $SIBLING; do
	crtos device add $one --no-reset || fail "add $one"
	[ "$(has)" = "$FUNCTION $SIBLING" ] || fail "after $one the realm has $(has)"
	alike 100 $programs/vfio-group
	linux_has && fail 'Linux has them as well'
	crtos device remove $one || fail "remove $one"
	[ -z "$(has)" ] || fail "after remove the realm has $(has)"
	linux_has || fail "Linux after $one"
done
# What a program does with one that is alone, it does with one of them.
crtos device add $FUNCTION --no-reset || fail 'add again'
alike 400 $programs/vfio
# Who has the group open keeps both.
group=$(basename "$(readlink /sys/bus/pci/devices/$SIBLING/iommu_group)")
# shellcheck disable=SC2016
timeout 300 crtos run -- bash -c 'exec 3<>"$0"; exec sleep 1000' "/dev/vfio/$group" &
program=$!
await "crtos ps | grep -q ' sleep  *S'" || fail 'no sleeper'
refused "programs of the realm have .* open" crtos device remove $SIBLING
[ "$(has)" = "$FUNCTION $SIBLING" ] || fail "then the realm has $(has)"
kill $program
wait $program
await "crtos device remove $SIBLING 2>err" || { fail remove; cat err; }

# One that a driver of Linux has transfer: none goes.
drives_no_more $SIBLING
modprobe -a uio_pci_generic pci-stub || exit 1
# driven_by DRIVER: it has the other one.
driven_by() {
	echo "$1" >/sys/bus/pci/devices/$SIBLING/driver_override
	echo $SIBLING >/sys/bus/pci/drivers_probe
	[ "$(driver $SIBLING)" = "$1" ] || fail "$1 does not have it"
}
driven_by uio_pci_generic
refused 'which the driver uio_pci_generic has' crtos device add $FUNCTION --no-reset
[ -z "$(has)" ] || fail "the realm has $(has)"
drives_no_more $SIBLING
# One that has no driver stays, and so does one whose driver does not have it transfer.
for one in none pci-stub; do
	[ $one = none ] || driven_by $one
	crtos device add $FUNCTION --no-reset || fail "add, beside $one"
	[ "$(has)" = $FUNCTION ] || fail "beside $one the realm has $(has)"
	timeout 100 crtos run -- $programs/vfio the_pin_or_messages >/dev/null 2>&1 ||
		fail "beside $one"
	refused already crtos device add $SIBLING --no-reset
	[ $one = none ] || drives_no_more $SIBLING
	crtos device remove $FUNCTION || fail "remove, beside $one"
done
# vfio-pci lets one go that the realm has: the other one goes on, and they come back together.
drives_by_vfio $SIBLING || exit 1
crtos device add $FUNCTION --no-reset || fail 'add once more'
echo $SIBLING >/sys/bus/pci/drivers/vfio-pci/unbind
refused 'already' crtos device add $SIBLING --no-reset
timeout 100 crtos run -- $programs/vfio the_pin_or_messages >/dev/null 2>&1 || fail 'the other one'
crtos device remove $FUNCTION || fail 'remove at last'
echo $SIBLING >/sys/bus/pci/drivers_probe
linux_has || fail 'Linux at last'
crtos device add $SIBLING --no-reset || fail 'add at last'
crtos down || fail down
linux_has || fail 'Linux after the realm'
for each in $FUNCTION $SIBLING; do drives_no_more $each; done
others_complain && fail dmesg
exit $failed
