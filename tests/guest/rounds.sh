#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Up, run, down, many times in one boot: nothing is left behind.
# kernels: all
# realm: no
# full: ROUNDS=100
# timeout: 900
set -u
rounds=${ROUNDS:-12}
last=$(($(getconf _NPROCESSORS_CONF) - 1))
online=$(cat /sys/devices/system/cpu/online)
modprobe crtos	# Linux warns of modules that are not its own
dmesg --clear

round() {
	crtos up --cpus "$last" --memory 256M || return 1
	[ "$(crtos run -- busybox md5sum /bin/busybox)" = "$sum" ] || return 1
	crtos down || return 1
}
sum=$(busybox md5sum /bin/busybox)
round || exit 1	# what is allocated once and kept (module, slabs) does not count
sleep 1
before=$(free_kib)
for i in $(seq "$rounds"); do
	round || { echo "round $i failed"; exit 1; }
done
for _ in {1..20}; do
	sleep 1
	after=$(free_kib)
	[ $((before - after)) -le 8192 ] && break
done
echo "$rounds rounds: free memory $before KiB before, $after KiB after"
[ "$(cat /sys/devices/system/cpu/online)" = "$online" ] || { echo "CPUs online: $(cat /sys/devices/system/cpu/online), were $online"; exit 1; }
[ $((before - after)) -le 8192 ] || { echo "more than 8 MiB are missing"; exit 1; }
! complaints | grep .
