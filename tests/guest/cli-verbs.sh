#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `ps`, `stats`, `log`, `version`, `check` show what is there; `down` refuses while programs run,
# and names them.
# kernels: 6.1 6.12
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
groupadd --system crtos 2>/dev/null
check 'up' crtos up --cpus "$last" --memory 256M --port 0xe9
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
