#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `crtos` leaves nothing behind when it is killed at a random moment of whatever it does.
# kernels: 6.12-rt
# more kernels: 6.1 6.1-rt 6.12
# realm: no
# shared: yes
# full: RUNS=200
# timeout: 900
set -u
runs=${RUNS:-12}
last=$(($(getconf _NPROCESSORS_CONF) - 1))
online=$(cat /sys/devices/system/cpu/online)
RANDOM=${SEED:-1}
modprobe crtos	# Linux warns of modules that are not its own
dmesg --clear

# Kill COMMAND after up to MILLISECONDS.
killed() {
	local limit=$1; shift
	"$@" >/dev/null 2>&1 &
	local pid=$!
	sleep "$(printf '0.%03d' $((RANDOM % limit)))"
	kill -9 $pid 2>/dev/null
	wait $pid 2>/dev/null
	return 0
}
back() { crtos down --force >/dev/null 2>&1; await '[ "$(cat /sys/devices/system/cpu/online)" = "$online" ]'; }

crtos up --cpus "$last" --memory 256M && crtos run -- busybox true && crtos down || exit 1
sleep 1
before=$(free_kib)
for i in $(seq "$runs"); do
	case $((i % 4)) in
	0) killed 999 crtos up --cpus "$last" --memory 256M ;;
	1)
		crtos up --cpus "$last" --memory 256M
		killed 300 crtos run -- busybox md5sum /usr/bin/python3 ;;
	2)
		crtos up --cpus "$last" --memory 256M; killed 100 crtos run -- busybox sleep 10
		killed 500 crtos down ;;
	3)
		crtos up --cpus "$last" --memory 256M
		for _ in 1 2 3; do killed 200 crtos run -- busybox cat /dev/zero; done
		crtos run -- busybox true || exit 1 ;;
	esac
	back || { echo "run $i: CPUs online: $(cat /sys/devices/system/cpu/online), were $online"; exit 1; }
done
echo "$runs runs"
all_free "$before" || exit 1
! complaints | grep .
