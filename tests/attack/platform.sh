#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A hostile Linux gives a cell what it calls a platform device: interrupt controllers, the IOMMU,
# the event timer, configuration space, the registers of a function of another cell. A page of its
# own it may give; it does not reach that meanwhile.
# kernels: 6.12
# realm: no
# shared: yes
# devices: yes
# uses: edu
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
ADD=16 REMOVE=17 INVALID=-1 OWNED=-5 number=$((0xffff))
# gives ADDRESS SIZE: the result of a call that gives cell 0 these addresses as a platform device.
gives() {
	local at=0 word
	for word in $((number | 3 << 32)) 0 0 "$1" "$2" $((0xe8000000)); do
		attack dma poke $((page + at)) "$word" >/dev/null
		at=$((at + 8))
	done
	attack hypercall $ADD 0 "$page" 0 0
}
# refused WHAT ADDRESS: the page is not given.
refused() {
	local result
	[ -n "$2" ] || { fail "there is no $1"; return; }
	result=$(gives "$2" 4096)
	[ "$result" = $OWNED ] || fail "$1 at $2: $result"
}
# first_of NAME: where the memory of that name begins.
first_of() { sed -n "s/^ *\([0-9a-f]*\)-.* : $1.*/0x\1/p" /proc/iomem | head -n 1; }
attacker || exit 1
dmesg --clear
crtos up --cpus 3 --memory 256M || exit 1
page=$(attack page)
refused 'I/O APIC' "$(first_of 'IOAPIC')"
refused 'local APIC' 0xfee00000
refused 'window of messages' 0xfeefe000
refused 'event timer' "$(first_of 'HPET')"
refused 'IOMMU' "$(crtos log | sed -n 's/.*IOMMU at \(0x[0-9a-f]*\): taken over.*/\1/p' | head -n 1)"
refused 'configuration space' "$(first_of 'PCI \(ECAM\|MMCONFIG\)')"
# shellcheck disable=SC2154
registers=$(cut -d' ' -f1 "/sys/bus/pci/devices/$edu/resource" | head -n 1)
crtos device add "$edu" --no-reset || fail 'add'
refused "a cell's registers" "$registers"
crtos device remove "$edu" || fail 'remove'
for bad in "$((page + 4096 + 16)) 4096" "$((page + 4096)) 100" "$((page + 4096)) $((0x2000000))" \
	"$((-4096)) 8192"; do
	# shellcheck disable=SC2086
	[ "$(gives $bad)" = $INVALID ] || fail "$bad is not refused"
done
# What nobody has is given, once, and comes back.
[ "$(gives "$registers" 4096)" = 0 ] || fail 'registers of Linux are not given'
[ "$(attack store long "$registers" 0)" = -14 ] || fail "Linux reaches them"
[ "$(gives "$registers" 4096)" = $OWNED ] || fail 'they are given twice'
crtos run -- busybox true || fail 'no program starts'
[ "$(attack hypercall $REMOVE 0 $number 0 0)" = 0 ] || fail 'they do not come back'
[ "$(attack hypercall $REMOVE 0 $number 0 0)" = $INVALID ] || fail 'they come back twice'
crtos device list
crtos down || fail down
rmmod attack
complaints | grep . && fail dmesg
exit $failed
