#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `ps`, `stats`, `log`, `version`, `check` show what is there; `down` refuses while programs run,
# and names them.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# shared: yes
set -u
last=$(($(getconf _NPROCESSORS_CONF) - 1))
failed=0
# check NAME COMMAND...: COMMAND succeeds.
check() { local name=$1; shift; if "$@"; then echo "ok $name"; else echo "FAILED $name: status $?"; failed=1; fi; }
# json CONDITION: the JSON on standard input, d, fulfils it.
# shellcheck disable=SC2317
json() { python3 -c "import json,sys; d=json.load(sys.stdin); sys.exit(not (${1//$'\n'/ }))"; }
member() { setpriv --reuid 65534 --regid 65534 --groups "$(getent group crtos | cut -d: -f3)" "$@"; }
cd "$(mktemp -d)" || exit 1

check 'check' crtos check
check 'check --json' json 'd["fit"] and all(r["found"] for r in d["requirements"])' < <(crtos check --json)
groupdel crtos 2>/dev/null
check 'up' crtos up --cpus "$last" --memory 256M --port 0xe9 >up
check 'up says so' grep -qx "the real-time realm is up on CPU $last with 256 MiB" up
# A group that comes later.
setpriv --reuid 65534 --regid 65534 --clear-groups crtos run busybox true 2>err
check 'without the group' grep -q 'remedy: .*groupadd --system crtos' err
groupadd --system crtos
member crtos run busybox true 2>err; check 'a group that came later' [ $? = 125 ]
check 'is told what root does' grep -q 'root gives it: .chgrp crtos /dev/crtos., .chmod 660 /dev/crtos.' err
check 'check tells it, too' grep -q '^note *group: exists, but /dev/crtos is not its own' < <(crtos check)
chgrp crtos /dev/crtos && chmod 660 /dev/crtos
check 'check sees that it is done' grep -q '^ok *group: exists' < <(crtos check)
setpriv --reuid 65534 --regid 65534 --clear-groups crtos run busybox true 2>err
check 'who is no member' grep -q 'make you a member' err
check 'version' crtos version
check 'the group may use the device' [ "$(stat -c '%G %a' /dev/crtos)" = 'crtos 660' ]
check 'a member of the group runs programs' member crtos run busybox true

check 'ps without programs' [ "$(crtos ps | wc -l)" = 1 ]
crtos run busybox sleep 10000 & program=$!
check 'ps names the program' await 'grep -q "^ *$program  *$program  *busybox  *[RSL] .* $last " <(crtos ps)'
# It runs until it sleeps.
# shellcheck disable=SC2317
sleeps() { json "d[0]['pid'] == $program and d[0]['cpu'] == $last and d[0]['state'] in 'SL'" < <(crtos ps --json); }
check 'ps --json' await sleeps

# What sleeps, in clocks, pipes or futexes, is not shown as running. No thread is without a name,
# and none has ended.
crtos run -- python3 -c '
import os, threading, time
ended = threading.Thread(target=lambda: None)
ended.start(); ended.join()
reader = os.pipe()
for wait in (lambda: os.read(reader[0], 1), threading.Event().wait, lambda: time.sleep(1000)):
    threading.Thread(target=wait, daemon=True).start()
threading.Event().wait()' & python=$!
of_python() { crtos ps --json | gojq -c "[.[] | select(.pid == $python) | .state] | sort"; }
check 'idle threads are shown as idle' await '[ "$(of_python)" = "[\"S\",\"S\",\"S\",\"S\"]" ]' 300
of_python
check 'each thread has a name' gojq -e 'all(.[]; .command != "")' < <(crtos ps --json)
kill $python; wait $python
check 'a program that has ended has no row' await '[ "$(of_python)" = "[]" ]' 100

check 'stats' grep -q "^ *$last  *realtime " < <(crtos stats)
check 'stats: devices' grep -qx "protected: .*neither memory nor CPUs of cells" < <(crtos stats)
check 'check: devices' grep -q "devices: they will be confined to Linux's memory and CPUs" < <(crtos check)
check 'stats --json' json "
	d['hypervisor']['running'] and d['cpus'][0]['owner'] == 'linux' and d['cpus'][$last]['owner'] == 'realtime'
	and sum(d['cpus'][0]['exits'].values()) == d['cpus'][0]['exits_total'] > 0
	and d['cells'][0]['cpus'] == [$last] and 0 < d['realm']['pool_free_bytes'] < d['realm']['pool_bytes']
	and len(d['realm']['idle_ns']) == 1" < <(crtos stats --json)
check 'cell list --json' json "d[0]['name'] == 'realtime' and d[0]['state'] == 'running' and d[0]['failure'] is None" < <(crtos cell list --json)
check 'log of the kernel' [ -n "$(crtos log --kernel)" ]
check 'log of the hypervisor' [ -n "$(crtos log --hypervisor)" ]
member crtos log >out 2>err; check 'log for a member of the group' [ $? = 0 ]
check "has the hypervisor's lines" grep -q 'hypervisor:' out
check "and none of the kernel's" [ "$(grep -c 'kernel:' out)" = 0 ]
check 'a line says why' [ "$(cat err)" = \
	"crtos: the real-time kernel's log is left out: this takes CAP_SYS_ADMIN: call it as root" ]
member crtos log --kernel >out 2>err; check 'which refuses it alone' [ $? = 1 ]
check 'log names both' [ "$(crtos log | grep -oE '(hypervisor|kernel):' | sort -u | wc -l)" = 2 ]
crtos log -f >follow & log=$!
check 'log -f shows what is there' await '[ -s follow ]'
sleep 0.5
check 'and goes on' kill $log

crtos down >out 2>err; check 'down refuses' [ $? = 1 ]
check 'and names the program' grep -q "$program busybox" err
check 'which still runs' kill -0 $program
check 'down --force' crtos down --force
wait $program 2>/dev/null
check 'ends it by SIGKILL' [ $? = 137 ]
check 'all CPUs are back' [ "$(cat /sys/devices/system/cpu/online)" = "0-$last" ]
check 'the log outlives the realm' [ -n "$(crtos log)" ]
check 'up again' crtos up --cpus "$last" --memory 256M
check 'a program again' crtos run busybox true
check 'down --unload' crtos down --unload
check 'the module is gone' [ ! -e /dev/crtos ]
exit $failed
