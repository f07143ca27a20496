#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The machine loses a function of the realm while Linux asks the realm's kernel for it, which has no
# time to answer: the realm is not to have it any more, and can have it again.
# kernels: 6.12
# realm: no
# shared: yes
# devices: yes
# uses: edu
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
# shellcheck disable=SC2154
place=/sys/bus/pci/devices/$edu
wished() { [ "$(attack wished)" = "$1" ] || fail "$2: $(attack wished) devices are wished for"; }
modprobe crtos && attacker || exit 1
in_memory crtos busybox chrt
dmesg --clear
crtos up --cpus 3 --memory 256M || exit 1
crtos device add "$edu" --no-reset || fail add
wished 1 'at first'

crtos run -- chrt -f 90 busybox sh -c 'echo spins; while :; do :; done' >spins &
spinner=$!
await 'grep -q spins spins' || fail 'nobody spins'
crtos device remove "$edu" 2>why &
remover=$!
await '[ "$(attack wished)" = 0 ]' || fail 'it is not asked for'
echo 1 >"$place/remove"
wait $remover && fail 'it is given back by a kernel that has no time'
grep -q kernel-silent why || fail "why: $(cat why)"
wished 0 'after it was lost'
kill -9 $spinner
wait $spinner

echo 1 >/sys/bus/pci/rescan
await '[ -e "$place" ]' || fail 'it does not come back'
crtos device add "$edu" --no-reset || fail 'add once more'
wished 1 'once more'
crtos run -- busybox true || fail 'no program starts'
crtos device remove "$edu" || fail remove
wished 0 'in the end'
crtos down || fail down
rmmod attack
complaints | grep . && fail dmesg
exit $failed
