#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# `crtos up` that is interrupted or killed at any moment leaves everything as before, and says so if
# it can.
# kernels: 6.1
# more kernels: 6.12-rt
# realm: no
# shared: yes
# timeout: 600
# full: RUNS=48
set -u
last=$(($(getconf _NPROCESSORS_CONF) - 1))
runs=${RUNS:-12}
RANDOM=${SEED:-7}
cd "$(mktemp -d)" || exit 1

# How long it takes, so that the moments spread over all of it.
crtos up --cpus "$last" --memory 128M && crtos down || exit 1
start=$(date +%s%3N)
crtos up --cpus "$last" --memory 128M || exit 1
took=$(($(date +%s%3N) - start)); crtos down || exit 1
sleep 1
before=$(free_kib)
ended=0 late=0
for i in $(seq "$runs"); do
	signals=(INT TERM KILL); signal=${signals[i % 3]}
	# Not in the background of this shell, where SIGINT would be ignored.
	python3 -c 'import os,signal,sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])' \
		crtos up --cpus "$last" --memory 128M 2>err & pid=$!
	sleep "$(printf '%d.%03d' $(((RANDOM % took) / 1000)) $((RANDOM % took % 1000)))"
	kill -"$signal" $pid 2>/dev/null; wait $pid 2>/dev/null; status=$?
	case $status in
	0) crtos down || { echo "run $i: down after an up that was too fast"; exit 1; }; continue ;;
	130 | 143 | 137) ended=$((ended + 1)) ;;
	*) echo "run $i: $signal gave status $status"; cat err; exit 1 ;;
	esac
	# Killed when all was done, before it could say so: then all is there.
	if [ "$status" = 137 ] && crtos run -- busybox true 2>/dev/null; then
		crtos down || { echo "run $i: down after a kill that was too late"; exit 1; }
		ended=$((ended - 1)) late=$((late + 1))
		continue
	fi
	# Whoever is waited for has undone everything.
	[ "$(cat /sys/devices/system/cpu/online)" = "0-$last" ] || { echo "run $i: $signal left CPUs $(cat /sys/devices/system/cpu/online)"; exit 1; }
	crtos down 2>/dev/null && { echo "run $i: $signal left something up"; exit 1; }
done
crtos up --cpus "$last" --memory 128M && crtos run busybox true && crtos down || exit 1
echo "$ended of $runs were interrupted, $late when all was done"
# The last moment is a short one.
[ "$late" -le $((runs / 6)) ] || exit 1
all_free "$before"
