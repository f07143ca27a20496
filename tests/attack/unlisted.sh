#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# No launch where a boot parameter hides a CPU from Linux: nobody would guard it.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# boot: nr_cpus=3
set -u
cpus=/sys/devices/system/cpu
failed=0
fail() { echo "FAILED $*"; failed=1; }

[ "$(cat $cpus/present)" = 0-2 ] || { echo 'nr_cpus= has no effect'; exit 1; }
modprobe crtos || exit 1
dmesg --clear
crtos check && fail 'crtos check finds nothing'
crtos check | grep -A2 'MISSING.*3 of the 4 CPUs' | grep 'remedy.*nr_cpus=' || fail 'no remedy'
crtos up --cpus 2 --memory 128M 2>err && fail 'launched'
grep 'nr_cpus=' err || { cat err; fail 'no remedy'; }
# Nor does the module believe the command.
crtos cell create probe --cpus 2 --memory 4M 2>err && fail 'launched for a cell'
grep 'APIC id 3' err || { cat err; fail 'no reason'; }
[ "$(cat $cpus/online)" = 0-2 ] || fail "CPUs online: $(cat $cpus/online)"
complaints | grep . && fail dmesg
exit $failed
