# SPDX-License-Identifier: MIT OR Apache-2.0
# What `./x run` shows; runs in a guest whose realm is up.
set -u
title() { printf '\n== %s\n' "$1"; }

title 'The machine: Linux and the real-time realm side by side'
echo "Linux $(uname -r), as Debian packages it, on CPUs $(cat /sys/devices/system/cpu/online)"
crtos stats || exit 1

title "Debian's busybox under Linux, then the same file in the realm"
native=$(busybox md5sum /bin/busybox) || exit 1
realm=$(crtos run -- busybox md5sum /bin/busybox) || exit 1
printf 'Linux  %s\nrealm  %s\n' "$native" "$realm"
if [ "$native" != "$realm" ]; then
	echo 'the two differ'
	exit 1
fi

title 'While a program runs in the realm: who is where'
crtos run -- busybox sleep 3 &
program=$!
sleep 1
crtos ps || exit 1
echo
echo "Linux knows the same process $program (CPU, command):"
ps -o pid,psr,stat,args -p "$program"
wait "$program" || exit 1

title 'What it cost: VM exits by CPU and reason, memory'
crtos stats || exit 1

title 'Linux gets its CPU back'
crtos down || exit 1
echo "Linux runs on CPUs $(cat /sys/devices/system/cpu/online) again"
