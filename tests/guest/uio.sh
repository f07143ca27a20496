#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An unmodified program drives a PCI function through UIO: tests/abi/uio.c runs under Linux, and
# then in the realm, which has the function.
# kernels: 6.1 6.12
# realm: no
# shared: yes
# devices: yes
# uses: edu alike
# timeout: 900
# Variables are those of common/edu.sh.
# shellcheck disable=SC2154
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
export FUNCTION=$edu
place=/sys/bus/pci/devices/$edu
program=/usr/lib/crtos-tests/abi/uio
refused() {
	local text=$1
	shift
	if "$@" 2>err; then fail "$* is not refused"; fi
	grep -q "$text" err || { fail "$*"; cat err; }
}
node() { local found; found=$(ls "$place/uio") && echo "/dev/$found"; }

modprobe -a uio_pci_generic crtos || exit 1
dmesg --clear
echo uio_pci_generic >"$place/driver_override"
echo "$edu" >/sys/bus/pci/drivers_probe
await '[ -c "$(node 2>/dev/null)" ]' || fail 'Linux has no device'
natively 300 $program
echo "$edu" >"$place/driver/unbind"
echo >"$place/driver_override"

crtos up --cpus 3 --memory 256M || exit 1
crtos device add "$edu" --no-reset || exit 1
[ "$(crtos device list --json | jq -c 'map([.function, .cell])')" = "[[\"$edu\",\"realtime\"]]" ] ||
	fail "list: $(crtos device list)"
await '[ -c "$(node 2>/dev/null)" ]' || fail 'there is no device'
alike 400 $program

crtos device remove "$edu" || fail remove
[ -e "$place/uio" ] && fail 'it is shown still'
[ "$(crtos device list --json)" = '[]' ] || fail "list: $(crtos device list)"

# One that interrupts by a table in its memory.
card=$(grep -lx 0x10d3 /sys/bus/pci/devices/*/device | head -n 1 | cut -d/ -f6)
place=/sys/bus/pci/devices/$card
crtos device add "$card" || fail 'the card'
await '[ -c "$(node 2>/dev/null)" ]' || fail 'there is no card'
[ "$(timeout 60 crtos run -- "$PROGRAMS/uio-e1000e" "$(node)")" = 10 ] || fail 'messages of a table'
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
