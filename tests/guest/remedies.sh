#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The commands that the remedies of docs/troubleshooting.md name work as they stand there, each in a
# machine in which somebody would type it. Options are options of crtos, and files are there. What
# needs a whole Debian is done by tests/host/common/debian-guest.sh.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# mem: 3G
# devices: yes
# can: yes
# packages: file,kexec-tools,procps,psmisc
# tier: full
# timeout: 900
# uses: remedies
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe -a kvaser_pci can_raw e1000e || exit 1
await '[ -e /sys/class/net/can0 ] && [ -e /sys/class/net/eth1 ]' || exit 1

# What the remedies name.
useradd alice
mkdir -p /etc/crtos
crtos plan >/etc/crtos/realm.toml || exit 1
cp /bin/true program
card=$(lspci -D -d ::0108 | cut -d' ' -f1)
options=$(for verb in up run trace latency cell link device log ps; do crtos $verb --help; done
	for verb in create start; do crtos cell $verb --help; done
	crtos device add --help; crtos link create --help)

# here TEXT: what it is on this machine.
here() {
	sed "s/\bUSER\b/alice/; s/\bVERB\b/up/; s/\bFILE\b/program/; s/\bADDRESS\b/$card/
		s/\bDEVICE\b/$card/; s/-e N$/-e 2/; s,GROUP/,/sys/fs/cgroup/group/,
		s/\bOLD\b/eth1/; s/\bNEW\b/net1/; s/\bNAME\b/demo/" <<<"$1"
}

# opened FILE: has a program keep it open.
opened() {
	sleep 1000 9<"$1" &
	await "[ -e /proc/$!/fd/9 ] && [ \"\$(readlink /proc/$!/exe)\" != /usr/bin/bash ]"
}
is_up() { crtos ps || crtos up --cpus 3 --memory 256M; }
# prepare COMMAND: makes a machine for it.
prepare() {
	pkill sleep && await '! pgrep sleep'
	crtos link destroy demo
	crtos cell destroy demo
	case $1 in
	'crtos up'* | 'crtos plan'* | modprobe* | 'ip link set can0'*) crtos down --force --unload ;;
	groupadd*) groupdel crtos ;;
	usermod* | chgrp*) getent group crtos || groupadd --system crtos ;;
	'echo member'* | 'sysctl kernel.modules_disabled') ;;
	*) is_up ;;
	esac
	case $1 in
	'crtos link destroy'*) crtos link create demo ;;
	'crtos cell destroy'*) crtos cell create demo --cpus 2 --memory 16M ;;
	'crtos device remove'*) crtos device add "$card" ;;
	chcpu*) chcpu -d 2 ;;
	mknod*) rm /dev/crtos ;;
	'echo member'*)
		mountpoint -q /sys/fs/cgroup || mount -t cgroup2 none /sys/fs/cgroup
		echo +cpuset >/sys/fs/cgroup/cgroup.subtree_control
		mkdir -p /sys/fs/cgroup/group ;;
	'fuser -v program') opened program ;;
	'fuser -v /dev/crtos') crtos run -- sleep 1000 & await 'crtos ps | grep -qw sleep' ;;
	'fuser -v /dev/crtos-shm'*) crtos link create demo; opened /dev/crtos-shm/demo ;;
	esac
}

done=0
while read -r code text; do
	words=$(here "$text")
	done=$((done + 1))
	case $(kind "$text") in
	option) grep -q -- "${words%% *}\b" <<<"$options" || fail "$code: $text is no option" ;;
	file) compgen -G "$words" >/dev/null || fail "$code: there is no $text" ;;
	# A processor of one thread a core has nobody type that.
	command) case $text in *smt/control)
			grep -q notsupp /sys/devices/system/cpu/smt/control && continue ;;
		esac
		prepare "$words" >/dev/null 2>&1 </dev/null
		(eval "$words") >out 2>&1 </dev/null || { fail "$code: $text ($words): status $?"; cat out; }
		;;
	esac
done < <(named)
pkill sleep
crtos down --force --unload
echo "$done commands, options and files"
[ $done -ge 130 ] || fail 'some were not found'
exit $failed
