#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Up, run, down, many times in one boot: nothing is left behind.
# kernels: 6.12-rt
# more kernels: 6.1 6.1-rt 6.12
# realm: no
# shared: yes
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
echo "$rounds rounds"
all_free "$before" || exit 1
[ "$(cat /sys/devices/system/cpu/online)" = "$online" ] || { echo "CPUs online: $(cat /sys/devices/system/cpu/online), were $online"; exit 1; }
! complaints | grep .
