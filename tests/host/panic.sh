#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux panics; a program in the realm goes on counting on a debug port at its rate.
# timeout: 180
set -u
dir=$(mktemp -d)
trap 'kill $vm 2>/dev/null; wait $vm 2>/dev/null; rm -rf "$dir"' EXIT
size() { stat -c %s "$dir/port"; }

./x vm --no-realm --debugcon "$dir/port" --on-panic wait --console "$dir/console" --timeout 120 -- '
	crtos up --cpus 3 --memory 256M --port 0xe9 || exit 1
	crtos run -- "$PROGRAMS/counter" 10000 &
	sleep 15
	echo c >/proc/sysrq-trigger' &
vm=$!

# Wait for the first letter, then see the rate before the panic.
while kill -0 $vm 2>/dev/null && ! [ -s "$dir/port" ]; do sleep 0.2; done
[ -s "$dir/port" ] || { echo "the program never counted"; exit 1; }
sleep 1
before=$(size); sleep 5; before=$(($(size) - before))
while kill -0 $vm 2>/dev/null && ! grep -q 'Kernel panic' "$dir/console"; do sleep 0.2; done
grep -q 'Kernel panic' "$dir/console" || { echo "Linux did not panic"; exit 1; }
sleep 10
after=$(size); sleep 5; after=$(($(size) - after))
echo "letters in 5 s: $before before the panic, $after from ten seconds after it"
[ "$before" -ge 450 ] && [ "$after" -ge 450 ]
