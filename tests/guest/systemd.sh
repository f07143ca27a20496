#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# With systemd as the first process: the configuration that `crtos plan` proposes makes a realm at
# boot, and units run in it, by the template and by a drop-in, with restarts, a watchdog, limits and
# their place in the journal as any. Stopping the service gives Linux everything back.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# packages: systemd-sysv,dbus,udev
# timeout: 600
# tier: full
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
unit=crtos-run@period.service
main() { systemctl show --property MainPID --value "$1"; }
in_realm() { crtos ps --json | gojq -e --argjson pid "$1" 'any(.[]; .pid == $pid)' >/dev/null; }

mkdir -p /etc/crtos/run /etc/systemd/system/plain.service.d
crtos plan >/etc/crtos/realm.toml || fail plan
echo 'COMMAND=cyclictest -m -p 98 -i 1000 -q' >/etc/crtos/run/period.conf
cat >/etc/systemd/system/plain.service <<'END'
[Service]
ExecStart=/usr/bin/python3 -u /etc/beats.py
Restart=always
WatchdogSec=300
NotifyAccess=all
LimitNOFILE=123
Nice=5
[Install]
WantedBy=multi-user.target
END
cat >/etc/systemd/system/plain.service.d/realm.conf <<'END'
[Unit]
Requires=crtos.service
After=crtos.service
[Service]
ExecStart=
ExecStart=crtos run -- /usr/bin/python3 -u /etc/beats.py
END
cat >/etc/beats.py <<'END'
import os, resource, socket, time
print('beats with', resource.getrlimit(resource.RLIMIT_NOFILE)[0], 'files, nice', os.nice(0))
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
while True:
    notify.sendto(b'WATCHDOG=1', os.environ['NOTIFY_SOCKET'])
    time.sleep(1)
END
systemctl enable crtos.service $unit plain.service || fail enable
ls /dev/crtos 2>/dev/null && fail 'the module is loaded'

# Process 1 looks when an orphan ends.
echo /lib/systemd/systemd >/run/init
(sleep 0.2 &)
await 'systemctl is-system-running 2>/dev/null | grep -qE "running|degraded"' ||
	{ fail "systemd: $(systemctl is-system-running)"; systemctl list-jobs; }
systemctl --failed --no-legend | grep . && fail 'units failed'
[ "$(cat /proc/1/comm)" = systemd ] || fail "process 1 is $(cat /proc/1/comm)"
for name in crtos.service $unit plain.service; do
	systemctl is-active --quiet "$name" || { fail "$name"; systemctl status --no-pager "$name"; }
done
systemctl show --property After basic.target | grep -q crtos.service || fail 'not before basic.target'
await 'in_realm "$(main $unit)" && in_realm "$(main plain.service)"' 600 ||
	{ fail 'they are not in the realm'; crtos ps; }
await 'journalctl --unit plain --output cat | grep -q "beats with 123 files, nice 5"' 600 ||
	{ fail 'the journal'; journalctl --no-pager --unit plain; }

# Who fails is started again.
before=$(main $unit)
kill -KILL "$before"
await '[ "$(main $unit)" != "$before" ] && in_realm "$(main $unit)"' 600 || fail 'no restart'
[ "$(systemctl show --property NRestarts --value $unit)" = 1 ] || fail 'the count of restarts'
[ "$(systemctl show --property NRestarts --value plain)" = 0 ] ||
	{ fail 'the watchdog'; journalctl --no-pager --unit plain; }

systemctl stop crtos.service || fail stop
systemctl is-active $unit plain && fail 'what needs the realm goes on'
crtos ps >/dev/null 2>&1 && fail 'the realm goes on'
[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'a CPU does not come back'
systemctl start $unit || fail 'it does not come again'
in_realm "$(main $unit)" || fail 'it runs elsewhere'
exit $failed
