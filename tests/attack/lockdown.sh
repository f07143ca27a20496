#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Where Linux is locked down, root gets no ports and registers by way of a cell, either, nor a
# program of the realm those of a PCI function by Linux's files.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# uses: edu
# Variables are those of common/edu.sh.
# shellcheck disable=SC2154
set -u
lockdown=/sys/kernel/security/lockdown
last=$(($(getconf _NPROCESSORS_CONF) - 1))
failed=0
fail() { echo "FAILED $*"; failed=1; }
refused() {
	"$@" 2>err && fail "not refused: $*"
	grep -q 'locked down' err || { cat err; fail "$*"; }
}
# maps: a program that maps registers of the function.
maps=(python3 -c 'import mmap, os, sys
mmap.mmap(os.open(sys.argv[1], os.O_RDWR), 4096)' "/sys/bus/pci/devices/$edu/resource0")

modprobe crtos || exit 1
mountpoint -q ${lockdown%/*} || mount -t securityfs none ${lockdown%/*}
[ -e $lockdown ] || exit 77
dmesg --clear
crtos cell create open --cpus "$last" --memory 4M --port 0x80 --msr 0x10:r >/dev/null || fail create
crtos cell destroy open || fail destroy
crtos up --cpus "$last" --memory 128M || fail up
crtos device add "$edu" --no-reset || fail 'the function'
"${maps[@]}" || fail 'Linux lets no program map registers'
crtos run -- "${maps[@]}" || fail 'no program of the realm maps registers'
crtos down || fail down
echo integrity >$lockdown || exit 1
refused crtos cell create ports --cpus "$last" --memory 4M --port 0x80
refused crtos cell create registers --cpus "$last" --memory 4M --msr 0x10:r
refused crtos up --cpus "$last" --memory 128M --port 0xcf8-0xcff
crtos up --cpus "$last" --memory 128M || fail up
crtos run -- busybox true || fail run
crtos device add "$edu" --no-reset || fail 'the function'
"${maps[@]}" 2>/dev/null && fail 'Linux lets programs map registers'
crtos run -- "${maps[@]}" 2>err && fail 'a program of the realm maps registers'
grep -q PermissionError err || { cat err; fail 'it is no matter of rights'; }
crtos run -- busybox devmem 0 2>err && fail 'a program of the realm has /dev/mem'
grep -q 'not permitted' err || { cat err; fail 'it is no matter of rights'; }
crtos down || fail down
complaints | grep . && fail dmesg
exit $failed
