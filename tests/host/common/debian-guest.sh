# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# The steps of debian.sh, inside the guest. The commands are those of docs/install.md.
set -u
share=/mnt/share
# shellcheck source=tests/host/common/everything.sh
. "$share/everything.sh"
# shellcheck source=tests/common/blocks.sh
. "$share/blocks.sh"
page=$share/install.md
failed=0
fail() { echo "FAILED $*"; failed=1; }

# await CONDITION: waits until it holds.
await() {
	local tries
	for ((tries = 0; tries < 600; tries++)); do
		eval "$1" && return
		sleep 0.5
	done
	return 1
}

# follow SECTION [LINES]: runs the commands of that section word by word, all or those lines, as
# root, and says yes to what they ask. What they print is in /tmp/out. `./x` is the host's.
follow() {
	local before=$SECONDS
	{
		# shellcheck disable=SC2016
		echo 'sudo() { "$@"; }'
		block "$page" "$1" sh | grep -v '^\./x ' | sed -n "${2-p}"
	} >/tmp/commands
	[ "$(wc -l </tmp/commands)" -gt 1 ] || fail "the page has no command for $1"
	yes | bash -ex /tmp/commands >/tmp/out 2>&1 || { fail "$1"; cat /tmp/out; }
	echo "$1 ${2-}: $((SECONDS - before)) s"
}
export DEBIAN_FRONTEND=noninteractive

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

# version: that of the module that is loaded.
version() { cat /sys/module/crtos/version; }
# main UNIT: its process.
main() { systemctl show --property MainPID --value "$1"; }
# runs PID: it is a process of the realm.
runs() { crtos ps --json | jq -e --argjson pid "$1" 'any(.[]; .pid == $pid)' >/dev/null; }
units='measure.service crtos-run@NAME.service'

# in_realm: the programs of all units come there.
in_realm() {
	local unit
	for unit in $units; do
		# shellcheck disable=SC2016
		await 'runs "$(main "$unit")"' ||
			{ fail "$unit is not in the realm"; systemctl status crtos.service "$unit"; }
	done
}

# What is removed under a program leaves everything as it is.
removal_is_refused() {
	crtos run -- sleep 10000 &
	local program=$!
	await "runs $program" || fail 'the program is not in the realm'
	apt-get -y -q remove crtos >/tmp/out 2>&1 && { fail 'removed under a program'; cat /tmp/out; }
	grep -q 'a program runs in the realm' /tmp/out || { fail 'no reason'; cat /tmp/out; }
	grep -q 'crtos down --force' /tmp/out || { fail 'no remedy'; cat /tmp/out; }
	runs "$program" || fail 'the program has ended'
	dpkg --audit | grep . && fail 'a package is half removed'
	kill "$program"
	wait "$program"
}

install() {
	booted
	everything >/root/before
	errors >/root/errors
	cd "$share/first" || exit 1
	follow Packages
	modinfo -F version crtos | grep -q . || { fail 'DKMS built no module'; cat /tmp/out; }
	systemctl is-enabled crtos.service | grep -q '^disabled$' || fail 'the service is on already'
	crtos check >/tmp/check || { fail check; cat /tmp/check; }
	follow Configuring
	removal_is_refused
	follow 'Starting at boot'

	# A program by the units of the page, and the page's drop-in for a unit that somebody has.
	local command='/usr/bin/cyclictest -m -p 98 -i 1000 -q'
	mkdir /etc/crtos/run /etc/systemd/system/measure.service.d
	block "$page" 'Starting at boot' conf >/etc/crtos/run/NAME.conf
	cat >/etc/systemd/system/measure.service <<-END
		[Service]
		ExecStart=$command
		[Install]
		WantedBy=multi-user.target
	END
	block "$page" 'Starting at boot' ini | sed "s,/usr/bin/PROGRAM ARGUMENTS,$command," \
		>/etc/systemd/system/measure.service.d/realm.conf
	grep -q "$command" /etc/systemd/system/measure.service.d/realm.conf || fail 'no drop-in'
	# shellcheck disable=SC2086
	systemctl enable $units 2>/dev/null || fail 'enable the units'
}

# The realm and the units are up after a boot.
started() {
	booted
	systemctl is-active --quiet crtos.service || { fail 'no realm'; systemctl status crtos.service; }
	in_realm
	journal
}

# What the remedies of errors name, and a test in a small guest cannot do. Keys are for firmware,
# and kdump-tools are not installed.
remedies() {
	local code text done=0
	# shellcheck source=tests/common/remedies.sh
	. "$share/remedies.sh"
	cd "$share/first/target/deb" || exit 1
	while read -r code text; do
		[ "$(kind "$text")" = debian ] || continue
		case $text in
		kdump-config\ * | mokutil\ *) continue ;;
		# Other steps install, which takes minutes here.
		apt\ *) text="$text --simulate" ;;
		# Nothing is to be left where DKMS's module is.
		make\ *)
			cp -r /usr/src/crtos-* /root/source
			export INSTALL_MOD_PATH=/root/modules
			text=${text/FOLDER//root/source} ;;
		esac
		(yes | eval "$text") >/tmp/out 2>&1 || { fail "$code: $text"; cat /tmp/out; }
		unset INSTALL_MOD_PATH
		done=$((done + 1))
	done < <(named)
	find /root/modules -name 'crtos.ko*' | grep -q . || fail 'make installs no module'
	systemctl unmask sleep.target
	[ $done -ge 8 ] || fail 'remedies were not found'
}

# An upgrade leaves what runs alone, and says what is to be done.
upgrade() {
	local old new running
	old=$(version) running=$(main measure.service)
	cd "$share/second" || exit 1
	follow Upgrading 1p
	new=$(modinfo -F version crtos)
	[ "$new" != "$old" ] || fail "the module is still $old"
	grep -q "the realm goes on as version $old.*systemctl restart crtos.service" /tmp/out ||
		{ fail 'the upgrade does not say it'; cat /tmp/out; }
	[ "$(version)" = "$old" ] || fail "version $(version) is loaded"
	[ "$(main measure.service)" = "$running" ] || fail 'the program has ended'
	kill -0 "$running" || fail 'it is no process'
	for words in 'ps' 'run -- true' 'check' 'up'; do
		# shellcheck disable=SC2086
		crtos $words >/tmp/out 2>&1 && fail "crtos $words gets along with version $old"
		grep -q 'systemctl restart crtos.service' /tmp/out ||
			{ fail "crtos $words does not say what to do"; cat /tmp/out; }
	done
	crtos down >/tmp/out 2>&1 && fail 'it goes down under programs'
	grep -q '2 programs run in the realm' /tmp/out || { fail 'down'; cat /tmp/out; }
	dkms status | tee /tmp/out
	grep -q "$old" /tmp/out && fail 'the old sources are left'

	# The new version comes with the page's restart, and so do the units that need it.
	follow Upgrading '2,$p'
	[ "$(version)" = "$new" ] || fail "version $(version) goes on"
	crtos version >/tmp/out || { fail 'parts do not fit'; cat /tmp/out; }
	in_realm
	[ "$(main measure.service)" != "$running" ] || fail 'the old program goes on'
	systemctl --failed --no-legend | grep . && fail 'units failed'
	journal
}

# Removing takes the realm down, with the programs of units, and nothing is left but their units.
remove() {
	follow Removing
	[ -e /sys/module/crtos ] && fail 'the module is loaded'
	modinfo crtos >/dev/null 2>&1 && fail 'the module is left'
	systemctl cat crtos.service >/dev/null 2>&1 && fail 'the unit is left'
	pgrep -a cyclictest && fail 'a program is left'
	[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || fail 'a CPU did not come back'
	rm -r /etc/systemd/system/measure.service*
	rm /etc/systemd/system/*/{measure,crtos-run@NAME}.service
	everything | diff /root/before - || fail 'something is left, or gone'
	journal
}

for step; do $step; done
exit $failed
