#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A device sends INIT to a CPU of the realm, which is lost. People are told: by `crtos cell list`,
# and by the realm's kernel as soon as another CPU of the realm waits for that one. The other CPU
# goes on.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# timeout: 300
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
silent() { crtos cell list --json | gojq -c '.[0].silent_cpus'; }

attacker || exit 1
crtos up --cpus 2,3 --memory 256M || exit 1
dmesg --clear
crtos run -- chrt -f 50 taskset -c 2 "$PROGRAMS/periodic" 1000 1000000 >ticks &
program=$!
await 'crtos ps | grep -qw $program' || fail 'no program'
crtos run -- "$PROGRAMS/mapper" 2 3 >work &
await '[ -s work ]' || fail 'no second program'
for _ in 1 2 3; do
	[ "$(silent)" = '[]' ] || fail "before: $(silent)"
done
[ "$(setpriv --reuid 12345 --regid 12345 --groups "$(stat -c %g /dev/crtos)" \
	crtos cell list --json | gojq -c '.[0].silent_cpus')" = null ] || fail 'a member may ring'

attack device 3 $((0x500)) >/dev/null || fail 'no INIT'
[ "$(silent)" = '[3]' ] || fail "after: $(silent)"
crtos cell list | grep -q 'realtime: CPU 3 does not answer' || fail 'the list does not tell'
# It waits for a second at most, as long as the list did.
await "crtos log | grep -q 'CPU 1 of the realm does not answer'" 100 ||
	fail 'the kernel does not tell'
goes_on $program INIT
complaints | grep . && fail dmesg
exit $failed
