#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# An unmodified program drives a platform device with memory and an interrupt through UIO:
# tests/abi/platform.c runs under Linux, and then in the realm, which has the device. What is not
# the device's alone is refused.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
# devices: yes
# uses: edu alike
# timeout: 900
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
# shellcheck disable=SC2154
function=$edu
module=/usr/lib/crtos-tests/attack/$(uname -r)/platform.ko
program=/usr/lib/crtos-tests/abi/platform
place=/sys/bus/platform/devices/crtos-test
node() { local found; found=$(ls $place/uio) && echo "/dev/$found"; }
driver() { basename "$(readlink $place/driver)"; }
listed() { crtos device list --json | gojq -c 'map([.function, .cell])'; }
cd "$(mktemp -d)" || exit 1
modprobe -a uio crtos || exit 1
dmesg --clear

# Another one on the same page: it is not given, and Linux's driver has the device.
insmod "$module" function="$function" neighbour=0x800 || exit 1
crtos up --cpus 3 --memory 256M || exit 1
refused 'are not its alone' crtos device add crtos-test
[ "$(driver)" = crtos-test ] || fail "the driver is $(driver)"
rmmod platform

insmod "$module" function="$function" || exit 1
await '[ -c "$(node 2>/dev/null)" ]' || fail 'Linux has no device'
natively 100 $program
cat platform.linux
refused 'there is no device' crtos device add crtos-test.1
crtos device add crtos-test || fail add
[ "$(driver)" = crtos ] || fail "the driver is $(driver)"
[ "$(listed)" = '[["crtos-test","realtime"]]' ] || fail "list: $(crtos device list)"
refused 'already' crtos device add crtos-test
await '[ -c "$(node 2>/dev/null)" ]' || fail 'there is no device'
alike 100 $program
crtos stats | grep -A1 '^DEVICE'

# A program that has it open keeps it. While one executes another, the refusal names nobody.
crtos run -- bash -c "exec 3<>$(node); : >opened; sleep 1000" &
await '[ -e opened ] && crtos ps | grep -qw sleep' || fail 'a program does not open it'
refused 'have crtos-test open: .*sleep' crtos device remove crtos-test
kill %1
wait
await 'crtos device remove crtos-test' || fail remove
[ "$(driver)" = crtos-test ] || fail "the driver is $(driver)"
[ "$(listed)" = '[]' ] || fail "list: $(crtos device list)"
await '[ -c "$(node 2>/dev/null)" ]' || fail 'Linux has no device any more'
timeout 100 $program >again.linux 2>&1 || { fail 'Linux after the realm'; cat again.linux; }

# By the name of its file; the machine loses it meanwhile.
crtos device add "$(ls $place/uio)" || fail 'add by uioN'
await '[ -c "$(node 2>/dev/null)" ]' || fail 'there is no device'
rmmod platform || fail rmmod
[ "$(listed)" = '[]' ] || fail "list: $(crtos device list)"
insmod "$module" function="$function" || fail insmod
crtos device add crtos-test || fail 'add again'
await '[ -c "$(node 2>/dev/null)" ]' || fail 'there is no device'
alike 100 $program

# Real ones of the machine: the event timer, which the hypervisor watches, and ones without memory.
refused 'not its alone\|a controller which it watches' crtos device add PNP0103:00
refused 'has I/O ports' crtos device add QEMU0002:00
refused 'has 0 pieces of memory' crtos device add pcspkr
crtos down || fail down
[ "$(driver)" = crtos-test ] || fail "the driver is $(driver)"

crtos up --cpus 3 --memory 256M --device crtos-test || fail 'up with it'
[ "$(listed)" = '[["crtos-test","realtime"]]' ] || fail "list: $(crtos device list)"
await '[ -c "$(node 2>/dev/null)" ]' || fail 'there is no device'
alike 100 $program
crtos down || fail down
rmmod platform || fail rmmod
complaints | grep . && fail dmesg
exit $failed
