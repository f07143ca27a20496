#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux panics; programs in the realm read its last words, hear of its end, and go on without it.
# full: KERNELS=both
# timeout: 1200
set -u
dir=$(mktemp -d)
trap 'kill $vm 2>/dev/null; wait $vm 2>/dev/null; rm -rf "$dir"' EXIT
survivors='handler waits default memory'

# says TEXT: waits until a program has written that to the port.
says() {
	until grep -qaF "$1" "$port"; do
		kill -0 $vm 2>/dev/null || { echo "the guest is gone without: $1"; return 1; }
		[ $SECONDS -lt $end ] || { echo "nobody says: $1"; return 1; }
		sleep 0.2
	done
}

panic_on() {
	local port=$dir/port-$1 console=$dir/console-$1 end=$((SECONDS + 500)) name
	mkdir -p "$dir/share"; rm -f "$dir/share/panic"; : >"$port"
	./x vm --kernel "$1" --no-realm --debugcon "$port" --on-panic wait --console "$console" \
		--share "$dir/share" --timeout 550 -- '
		crtos up --cpus 3 --memory 256M --port 0xe9 || exit 1
		for name in '"$survivors"'; do
			sleep 10000 | chrt -f 50 crtos run -- "$PROGRAMS/survivor" $name &
		done
		chrt -f 50 crtos run -- busybox sh -c "busybox cat /dev/last_kmsg | $PROGRAMS/to-port" &
		until [ -e /mnt/share/panic ]; do sleep 0.2; done
		echo "for the realm: 4711" >/dev/kmsg
		echo c >/proc/sysrq-trigger' &
	vm=$!
	for name in $survivors; do says "$name: ready" || return 1; done
	# Until it waits there.
	sleep 5
	touch "$dir/share/panic"
	says 'for the realm: 4711' && says 'Kernel panic - not syncing: sysrq triggered crash' &&
		says 'handler: told by 30' && says 'waits: told by 30, code 128' || return 1
	for name in $survivors; do says "$name: done" || return 1; done
	# Whatever they say else went wrong.
	! grep -aE '^(handler|waits|default|memory): ' "$port" | grep -vE ': (ready|told by .*|done)$'
}

kernels=(6.12)
[ -z "${KERNELS:-}" ] || kernels=(6.1 6.12)
for kernel in "${kernels[@]}"; do
	panic_on $kernel; status=$?
	kill $vm 2>/dev/null; wait $vm 2>/dev/null
	if [ $status != 0 ]; then
		echo "on $kernel the port has:"; tail -n 40 "$dir/port-$kernel"
		exit 1
	fi
	echo "$kernel: $(wc -c <"$dir/port-$kernel") bytes at the port"
done
