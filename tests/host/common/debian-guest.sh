# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# The steps of debian.sh, inside the guest.
set -u
share=/mnt/share
failed=0
fail() { echo "FAILED $*"; failed=1; }

# await CONDITION: waits until it holds.
await() {
	local _
	for ((_ = 0; _ < 600; _++)); do
		eval "$1" && return
		sleep 0.5
	done
	return 1
}

# booted: the system is up, and no unit has failed.
booted() {
	local state
	state=$(systemctl is-system-running --wait)
	[ "$state" = running ] || { fail "the system is $state"; systemctl --failed --no-legend; }
	echo "$(uname -r): $(systemd-analyze time | head -1)"
}

# journal: fails if there are errors since the boot that a system without crtos has not.
errors() {
	journalctl --boot --priority err --no-pager --quiet --output cat | sed 's/[0-9]\+/N/g' | sort -u
}
journal() { errors | grep -vxFf /root/errors && fail 'the journal'; }

# What logs and caches hold, what belongs to DKMS, to systemd and to the tests, and copies of files
# that tools make when they change them.
files() {
	find / -xdev \( -path /var/log -o -path /var/cache -o -path /var/lib/dpkg -o -path /tmp \
		-o -path /root -o -path /mnt -o -path /var/tmp -o -path '/etc/*-' \
		-o -path /var/lib/systemd -o -path '/var/lib/dkms/mok.*' \
		-o -path /var/lib/apt \) -prune -o -print | sort
}

# version: that of the module that is loaded.
version() { cat /sys/module/crtos/version; }
main() { systemctl show --property MainPID --value measure.service; }
in_realm() { crtos ps --json | jq -e --argjson pid "$(main)" 'any(.[]; .pid == $pid)' >/dev/null; }

# apt COMMAND PACKAGE...: what it prints is in /tmp/apt.
apt() {
	local before=$SECONDS
	DEBIAN_FRONTEND=noninteractive apt-get -y -q "$@" >/tmp/apt 2>&1 ||
		{ fail "apt-get $*"; cat /tmp/apt; }
	echo "apt-get $1: $((SECONDS - before)) s"
}

install() {
	booted
	files >/root/before
	errors >/root/errors
	apt install "$share"/first/*.deb
	modinfo -F version crtos | grep -q . || fail 'DKMS built no module'
	systemctl is-enabled crtos.service | grep -q '^disabled$' || fail 'the service is on already'
	crtos check >/tmp/check || { fail check; cat /tmp/check; }
	crtos plan >/etc/crtos/realm.toml || fail plan
	crtos up --dry-run >/tmp/out 2>&1 || { fail 'the plan'; cat /tmp/out; }
	systemctl enable crtos.service 2>/dev/null || fail enable

	# A unit that somebody has already, and the drop-in of docs/install.md.
	mkdir /etc/systemd/system/measure.service.d
	cat >/etc/systemd/system/measure.service <<-'END'
		[Service]
		ExecStart=/usr/bin/cyclictest -m -p 98 -i 1000 -q
		[Install]
		WantedBy=multi-user.target
	END
	cat >/etc/systemd/system/measure.service.d/realm.conf <<-'END'
		[Unit]
		Requires=crtos.service
		After=crtos.service
		[Service]
		ExecStart=
		ExecStart=crtos run -- /usr/bin/cyclictest -m -p 98 -i 1000 -q
	END
	systemctl enable measure.service 2>/dev/null || fail 'enable the unit'
}

upgrade() {
	booted
	systemctl is-active --quiet crtos.service || { fail 'no realm'; systemctl status crtos.service; }
	await in_realm || { fail 'the unit is not in the realm'; systemctl status measure.service; }
	journal

	# An upgrade leaves what runs alone, and says what is to be done.
	old=$(version) running=$(main)
	apt install "$share"/second/*.deb
	new=$(modinfo -F version crtos)
	[ "$new" != "$old" ] || fail "the module is still $old"
	grep -q "the realm goes on as version $old.*systemctl restart crtos.service" /tmp/apt ||
		{ fail 'the upgrade does not say it'; cat /tmp/apt; }
	[ "$(version)" = "$old" ] || fail "version $(version) is loaded"
	[ "$(main)" = "$running" ] || fail 'the program has ended'
	kill -0 "$running" || fail 'it is no process'
	for words in 'ps' 'run -- true' 'check' 'up'; do
		# shellcheck disable=SC2086
		crtos $words >/tmp/out 2>&1 && fail "crtos $words gets along with version $old"
		grep -q 'systemctl restart crtos.service' /tmp/out ||
			{ fail "crtos $words does not say what to do"; cat /tmp/out; }
	done
	crtos down >/tmp/out 2>&1 && fail 'it goes down under a program'
	grep -q 'a program runs in the realm' /tmp/out || { fail 'down'; cat /tmp/out; }
	dkms status | tee /tmp/out
	grep -q "$old" /tmp/out && fail 'the old sources are left'

	# The new version comes with a restart, and so do the units that need it.
	systemctl restart crtos.service || { fail restart; journalctl --unit crtos.service; }
	[ "$(version)" = "$new" ] || fail "version $(version) goes on"
	crtos version >/tmp/out || { fail 'parts do not fit'; cat /tmp/out; }
	await in_realm || { fail 'the unit is not in the new realm'; systemctl status measure.service; }
	[ "$(main)" != "$running" ] || fail 'the old program goes on'
	systemctl --failed --no-legend | grep . && fail 'units failed'
	journal

	# Nothing is left of it.
	rm -r /etc/systemd/system/measure.service* /etc/systemd/system/*/measure.service
	systemctl daemon-reload
	apt purge crtos crtos-dkms
	[ -e /sys/module/crtos ] && fail 'the module is loaded'
	modinfo crtos >/dev/null 2>&1 && fail 'the module is left'
	getent group crtos && fail 'the group is left'
	systemctl cat crtos.service >/dev/null 2>&1 && fail 'the unit is left'
	pgrep -a 'cyclictest' && fail 'a program is left'
	[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'a CPU did not come back'
	files | diff /root/before - || fail 'files differ'
	journal
}

case $1 in
install) install ;;
upgrade) upgrade ;;
*) fail "no step $1" ;;
esac
exit $failed
