#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's dpdk-testpmd forwards frames between two network cards on one wire, as it is installed:
# under Linux, and then in the realm, which has the cards. No frame is lost, and for a minute the
# CPU of the realm that forwards does not exit.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# mem: 3G
# uses: vfio
# packages: dpdk-dev
# tier: full
# timeout: 1200
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
mapfile -t cards < <(grep -lx 0x10d3 /sys/bus/pci/devices/*/device | cut -d/ -f6)
[ ${#cards[@]} -ge 2 ] || { echo 'there are no two cards'; exit 1; }
for card in "${cards[@]:0:2}"; do drives_by_vfio "$card" || exit 1; done
forward=(dpdk-testpmd -l "0,1" --no-huge -m 128 --no-shconf --iova-mode=va -a "${cards[0]}"
	-a "${cards[1]}")
how=(--nb-cores=1 --forward-mode=io --auto-start --tx-first --txd=64 --rxd=64
	--total-num-mbufs=2048)

# of_ports NAME OUTPUT: what the statistics of the ports have by that name.
of_ports() {
	awk -v name="$1" '/Forward statistics for port/ { on = 1 }
		on && $1 == name { print $2; on = 0 }' "$2"
}
# forwards WHERE OUTPUT: each port has sent what the other one received, but for what was on its way
# at the end, and nothing was dropped.
forwards() {
	local received=() sent=() dropped
	mapfile -t received < <(of_ports RX-packets: "$2")
	mapfile -t sent < <(of_ports TX-packets: "$2")
	dropped=$(awk '/dropped: [1-9]/ { print }' "$2")
	echo "$1: received ${received[*]}, sent ${sent[*]}"
	if [ "${#received[@]}" != 2 ] || [ "${#sent[@]}" != 2 ]; then
		fail "$1: no statistics"
		tail -30 "$2"
		return
	fi
	[ "${received[0]}" -gt 1000 ] || fail "$1: few frames"
	[ -z "$dropped" ] || fail "$1: $dropped"
	for port in 0 1; do
		[ $((sent[port] - received[1 - port])) -le 64 ] || fail "$1: port $port lost some"
	done
}

sleep 20 | timeout 200 stdbuf -oL "${forward[@]}" -- "${how[@]}" >linux.out 2>&1 ||
	fail "status $? under Linux"
forwards Linux linux.out

crtos up --cpus 2,3 --memory 512M || exit 1
for card in "${cards[@]:0:2}"; do crtos device add "$card" --no-reset || fail "add $card"; done
# The CPU that forwards.
exits() { crtos stats --json | gojq -c '.cpus[] | select(.cpu == 3) | .exits'; }
sleep 80 | timeout 300 chrt -f 10 stdbuf -oL crtos run --renumber-cpus -- "${forward[@]}" -- \
	"${how[@]}" >realm.out 2>&1 &
child=$!
await 'grep -q "Press enter to exit" realm.out || ! [ -d /proc/$child ]'
grep -q "Press enter to exit" realm.out ||
	{ fail 'it does not begin'; tail -30 realm.out; }
sleep 1
before=$(exits)
sleep 60
[ "$(exits)" = "$before" ] || fail "exits: $before, then $(exits)"
[ -d /proc/$child ] || fail 'it has ended before'
wait $child || fail "status $? in the realm"
forwards realm realm.out
for card in "${cards[@]:0:2}"; do crtos device remove "$card" || fail "remove $card"; done
crtos down || fail down
exit $failed
