#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What docs/install.md says to measure on a machine can be measured: its commands as they stand, but
# shorter, and without installing packages. The kernel has to be one with the tracer hwlat.
# kernels: 6.12-rt
# more kernels: 6.1-rt
# realm: no
# packages: rt-tests,stress-ng,python3-minimal
# uses: blocks
# tier: full
# timeout: 1200
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
sudo() { "$@"; }
mkdir -p /etc/crtos
crtos plan >/etc/crtos/realm.toml || exit 1
done=0
while IFS= read -r command; do
	case $command in
	*apt\ *) continue ;;
	*hwlatdetect*) command=${command/10m/3s} ;;
	*bench*) command="$command --figures getpid,cyclictest --loads none --samples 100" ;;
	esac
	eval "$command" >out 2>&1 </dev/null
	status=$?
	case $command:$status in
	# It fails if there was a sample, of which an emulator has many.
	*hwlatdetect*) grep -q '^Samples recorded: ' out || { fail "$command"; cat out; } ;;
	*:0) ;;
	# Nothing is up.
	*'crtos down':1) grep -q 'explain not-up' out || { fail "$command"; cat out; } ;;
	*) fail "$command: status $status"; cat out ;;
	esac
	done=$((done + 1))
done < <(for section in 'The machine' Measuring; do
	block /usr/share/doc/crtos/install.md "$section" sh
done)
[ $done = 5 ] || fail "$done commands"
grep -q realm report.html || fail 'no figure of the realm'
ls before after
crtos down || fail down
exit $failed
