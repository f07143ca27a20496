#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Where Linux is locked down, root gets no ports and registers by way of a cell, either.
# kernels: 6.1 6.12
# realm: no
set -u
lockdown=/sys/kernel/security/lockdown
last=$(($(getconf _NPROCESSORS_CONF) - 1))
failed=0
fail() { echo "FAILED $*"; failed=1; }
refused() {
	"$@" 2>err && fail "not refused: $*"
	grep -q 'locked down' err || { cat err; fail "$*"; }
}

modprobe crtos || exit 1
mountpoint -q ${lockdown%/*} || mount -t securityfs none ${lockdown%/*}
[ -e $lockdown ] || exit 77
dmesg --clear
crtos cell create open --cpus "$last" --memory 4M --port 0x80 --msr 0x10:r >/dev/null || fail create
crtos cell destroy open || fail destroy
echo integrity >$lockdown || exit 1
refused crtos cell create ports --cpus "$last" --memory 4M --port 0x80
refused crtos cell create registers --cpus "$last" --memory 4M --msr 0x10:r
refused crtos up --cpus "$last" --memory 128M --port 0xcf8-0xcff
crtos up --cpus "$last" --memory 128M || fail up
crtos run -- busybox true || fail run
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
