# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Programs in containers of an engine, Podman or Docker, which `engine` names: with its own seccomp
# profile and capabilities. What they do in Linux and in the realm is compared. An image is made of
# programs of the guest, since no registry is reached. The script has to start the engine first.
# shellcheck disable=SC2034,SC2154
ABI=/usr/lib/crtos-tests/abi
group=4242
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }

# Layers are overlays, which the guest's own root cannot hold.
mkdir -p /var/lib/containers /var/lib/docker
mount -t tmpfs containers /var/lib/containers
mount -t tmpfs docker /var/lib/docker

# make_image PROGRAM...: makes an image of busybox and these programs, with their libraries.
make_image() {
	local program file
	mkdir -p image/{bin,dev,etc,proc,sys,tmp,usr/lib,usr/sbin}
	for program in /bin/busybox "$@"; do
		for file in "$program" $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*'); do
			mkdir -p "image/${file%/*}"
			cp -L "$file" "image/$file"
		done
	done
	for program in sh sleep cat id echo tty mkdir rm ls; do
		ln -s busybox "image/bin/$program"
	done
	tar -C image -cf image.tar .
	$engine import image.tar image >/dev/null
}

# What is passed to all containers: the device and crtos's files.
passed=(--network none --device /dev/crtos -v /usr/sbin/crtos:/usr/sbin/crtos:ro
	-v /usr/lib/crtos:/usr/lib/crtos:ro -v "$ABI:$ABI:ro")
# box [OPTIONS] image COMMAND...: runs the command in a container.
box() { timeout 200 $engine run --rm "${passed[@]}" "$@"; }

# start NAME [OPTIONS] image COMMAND...: the same in the background, until sleep is in the realm.
start() {
	local name=$1
	shift
	$engine rm -f "$name" >/dev/null 2>&1
	$engine run -d --name "$name" "${passed[@]}" "$@" >/dev/null || fail "start of $name"
	await '[ -n "$(in_realm sleep)" ]' 600 || fail 'nothing runs'
}

# same [OPTIONS] -- COMMAND...: does the same in a container under Linux and in the realm, with
# `input` as standard input.
same() {
	local options=() linux realm
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	box -i "${options[@]}" image "$@" >linux.out 2>linux.err <input
	linux=$?
	box -i "${options[@]}" image crtos run -- "$@" >realm.out 2>realm.err <input
	realm=$?
	if [ $linux = $realm ] && [ $linux -lt 125 ] && cmp -s linux.out realm.out &&
		cmp -s linux.err realm.err && ! grep -q ^FAILED linux.out; then
		echo "ok ${options[*]} $*"
		return
	fi
	fail "${options[*]} $*: status $linux under Linux, $realm in the realm"
	diff linux.out realm.out | head -20
	diff linux.err realm.err | tail -5
}

# status NAME: with what that container has ended; empty while it runs.
status() {
	$engine inspect -f '{{if not .State.Running}}{{.State.ExitCode}}{{end}}' "$1" 2>/dev/null
}

# in_realm COMMAND: the ids of the programs of that name.
in_realm() {
	crtos ps --json | gojq -r --arg name "$1" '.[] | select(.command == $name) | .pid'
}

# ends NAME EXPECTED COMMAND...: after the command, the container ends with that status, and none of
# its programs is in the realm.
ends() {
	local name=$1 expected=$2
	shift 2
	"$@" >/dev/null || fail "$*"
	await "[ -n \"\$(status $name)\" ]" 600 || fail "$*: it has not ended"
	[ "$(status "$name")" = "$expected" ] || fail "$*: status $(status "$name"), not $expected"
	await '[ -z "$(in_realm sleep)" ]' 300 || fail "$*: a program is left"
	$engine rm -f "$name" >/dev/null
}

# All that a user of the engine expects.
check_engine() {
	make_image "$(command -v cyclictest)" "$(command -v chrt)" "$(command -v nice)" || exit 1
	modprobe crtos
	dmesg --clear
	crtos up --cpus 3 --memory 512M || exit 1
	echo 'a line' >input
	# As where the group has been made.
	chgrp $group /dev/crtos
	# The profile and the capabilities are the engine's own.
	box image cat /proc/self/status | grep -q '^Seccomp:.*2' || fail 'no seccomp profile'
	box image cat /proc/self/status | grep -q '^CapEff:.*ffffffffff' && fail 'all capabilities'

	# As docs/install.md has it, but for the network.
	local command
	command=$(sed -n '/^    podman run/,/^$/p' /usr/share/doc/crtos/install.md |
		sed "s/podman run/$engine run --network none/; s/IMAGE/image/; s/PROGRAM/echo there/")
	[ "$(eval "$command")" = there ] || fail "the page's command: $command"

	# Programs, files, user, ids, exit status, streams.
	same -- "$ABI/fork"
	same -- "$ABI/signals"
	same -- "$ABI/exec-signals"
	same -- "$ABI/memory"
	same -- "$ABI/shared-memory"
	same -- "$ABI/siginfo"
	same -- "$ABI/races"
	same -- cat
	same -- cat /proc/self/cgroup
	# shellcheck disable=SC2016
	same -- sh -c 'echo $$; cat /proc/self/comm; ls / /proc/self/fd; id; exit 7'
	same -- sh -c 'echo told >&2; mkdir /tmp/new && rm -r /tmp/new; cat /etc/shadow'
	same --user 1234:5678 --group-add $group -- id
	same --read-only -- sh -c 'mkdir /tmp/new'
	same --cap-drop ALL --security-opt no-new-privileges -- id
	same --init -- sh -c 'exit 3'
	# shellcheck disable=SC2016
	same -e COLOUR=red -w /etc -- sh -c 'echo $COLOUR $PWD'

	# Priorities are those that Linux permits there.
	same -- chrt -f 1 echo there
	same --cap-add SYS_NICE -- chrt -f 90 chrt -p 0
	same --ulimit rtprio=50 --user 1234 --group-add $group -- chrt -f 50 chrt -p 0
	same --ulimit rtprio=50 --user 1234 --group-add $group -- chrt -f 51 echo there
	same --cap-add SYS_NICE -- nice -n -5 echo there
	box --cap-add SYS_NICE --ulimit memlock=-1 image \
		crtos run -- cyclictest -m -q -p 90 -i 1000 -l 200 >out 2>err || fail cyclictest
	grep -q '^T: 0 .*P:90 .*C: *200 ' out || { fail cyclictest; cat out err; }

	# What control groups limit.
	same --memory 32m -- cat
	same --pids-limit 30 -- sh -c 'echo one | cat'
	same --cpus 0.5 --cpuset-cpus 1 -- cat
	# The program's memory is the realm's, so that of the group holds the shadow only.
	box --memory 32m image crtos run -- sh -c 'busybox dd if=/dev/zero of=/dev/null bs=64M count=1' \
		2>err || { fail '64 MiB in a group of 32 MiB'; cat err; }

	# Ends.
	start one image crtos run -- sleep 1000
	[ "$($engine exec one crtos ps --json | gojq -r '.[].command')" = sleep ] || fail 'ps inside'
	[ "$($engine exec one crtos run -- echo there)" = there ] || fail 'exec'
	$engine pause one >/dev/null && $engine unpause one >/dev/null || fail 'pause'
	ends one 137 $engine kill one
	start one image crtos run -- sleep 1000
	# The first process of a container takes no SIGTERM that it has no handler for.
	ends one 137 $engine stop -t 2 one
	start one --init image crtos run -- sleep 1000
	ends one 143 $engine stop -t 100 one
	start one image crtos run -- sh -c 'trap "exit 3" TERM; echo there; sleep 1000 & wait'
	await '[ "$($engine logs one)" = there ]' 600 || fail 'nothing is told'
	ends one 3 $engine stop -t 100 one
	start one image crtos run -- sleep 1000
	ends one 137 kill -KILL "$(in_realm sleep)"

	# Who may not use the device is told.
	box --user 1234 image crtos run -- echo there >out 2>err && fail 'a user who is no member'
	grep -q 'explain device-access' err || { fail 'told'; cat err; }
	[ "$(box --user 1234 --group-add $group image crtos run -- echo there)" = there ] ||
		fail 'a member'

	crtos down || fail down
	# A case of shared-memory does what Linux warns of.
	complaints | grep -v 'attempted to duplicate a private mapping' | grep . && fail dmesg
}
