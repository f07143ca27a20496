#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Cells for bare-metal programs are made, started, stopped, started anew and destroyed. A cell that
# failed says how.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
set -u
last=$(($(getconf _NPROCESSORS_CONF) - 1))
failed=0
check() { local name=$1; shift; if "$@"; then echo "ok $name"; else echo "FAILED $name: status $?"; failed=1; fi; }
inmates=/usr/lib/crtos/inmates
cd "$(mktemp -d)" || exit 1

check 'create' [ "$(crtos cell create demo --cpus "$last" --memory 16M --port 0xe9)" = 0 ]
check 'created' [ "$(state demo)" = created ]
check 'its CPU is gone from Linux' [ "$(cat /sys/devices/system/cpu/online)" = "0-$((last - 1))" ]
crtos cell start demo 2>err; check 'start of an empty cell is refused' grep -q 'nothing was loaded' err
crtos cell create demo --cpus 1 2>err; check 'a second one of the name is refused' grep -q 'of that name already' err
crtos cell load demo /bin/ls 2>err; check 'a dynamically linked program is refused' grep -q 'it is not statically linked at fixed addresses' err
check 'load' crtos cell load demo $inmates/latency.elf
check 'start' crtos cell start demo
check 'running' [ "$(state demo)" = running ]
crtos cell start demo 2>err; check 'start of a running cell is refused' grep -q 'it runs' err
crtos cell shared demo --length 4K --raw >one
check 'the shared block is read' [ "$(stat -c %s one)" = 4096 ]
check 'dump' grep -q '^00000010  ' <(crtos cell shared demo --offset 16 --length 16)
crtos cell shared demo --offset 2M --length 1 2>err; check 'beyond the end is refused' grep -q 'it ends at 2 MiB' err
check 'write' crtos cell shared demo --offset 1M --write one
check 'what was written is there' cmp -s one <(crtos cell shared demo --offset 1M --length 4K --raw)
check 'doorbell' crtos cell doorbell demo
check 'stop' crtos cell stop demo
check 'stopped' [ "$(state demo)" = stopped ]
check 'restart' crtos cell restart demo
check 'running again' [ "$(state demo)" = running ]
check 'by number' crtos cell stop 0
check 'start with what was loaded' crtos cell start demo
check 'destroy' crtos cell destroy demo
check 'none' [ "$(state demo)" = none ]
check 'its CPU is back' [ "$(cat /sys/devices/system/cpu/online)" = "0-$last" ]

check 'create' crtos cell create bad --cpus "$last"
check 'start of the prober' crtos cell start bad $inmates/prober.elf --command-line port
check 'failed' await '[ "$(state bad)" = failed ]'
check 'how it failed' grep -q '^bad: touched an I/O port that is not its own (0x' <(crtos cell list)
check 'down ends it' crtos down
check 'all CPUs are back' [ "$(cat /sys/devices/system/cpu/online)" = "0-$last" ]
exit $failed
