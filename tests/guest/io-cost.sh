#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What Linux's I/O pays for the hypervisor, in virtual time: a disk (NVMe) and two network cards
# (e1000e) without crtos, and beside a realm with either kind of confinement, several times by
# turns. How long CPUs work for each read of 4 KiB, each of 128 KiB and each megabyte that is sent,
# in nanoseconds, the least of all times; how many VM exits that makes, and how long CPUs are in the
# hypervisor for it. What devices themselves take has no time here. The same work differs by a third
# from time to time, with and without crtos; so exits and the time that they take are bounded.
# kernels: 6.1 6.12
# icount: yes
# realm: no
# devices: yes
# packages: fio,iperf3
# tier: full
# timeout: 3000
# What is measured has its name in a variable.
# shellcheck disable=SC2317
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe -a nvme e1000e crtos || exit 1
await '[ -b /dev/nvme0n1 ]' || exit 1
for device in /sys/bus/pci/drivers/e1000e/0000*/net/*; do cards+=("${device##*/}"); done
for number in 0 1; do
	ip netns add end$number
	ip link set "${cards[number]}" netns end$number
	ip -n end$number address add 10.0.0.$((number + 1))/24 dev "${cards[number]}"
	ip -n end$number link set "${cards[number]}" up
done
await 'ip netns exec end0 busybox ping -q -c 1 -W 1 10.0.0.2 >/dev/null' || fail 'no wire'
# exits: how many there were, and the nanoseconds that they took.
exits() {
	crtos stats --json 2>/dev/null |
		gojq -r '[([.cpus[].exits[]] | add), ([.cpus[:3][].hypervisor_ns] | add)] | @tsv' ||
		echo 0 0
}
# work: nanoseconds that CPUs have worked so far. How long one was idle it tells when it wakes.
work() {
	local cpu
	for cpu in 0 1 2; do taskset -c $cpu true; done
	awk '/^now at/ { now = $3 } /^cpu:/ { cpu = $2 }
		/\.idle_sleeptime/ && cpu < 3 { idle += $3 }
		END { printf "%.0f\n", 3 * now - idle }' /proc/timer_list
}
# reads SIZE COUNT: one after the other.
reads() {
	taskset -c 1 fio --name=it --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio \
		--iodepth=1 --bs="$1" --rw=randread --norandommap --randseed=1 --size=64M \
		--io_size=8G --number_ios="$2" >/dev/null
}
# sends MEGABYTES: from one card to the other.
sends() {
	ip netns exec end0 taskset -c 1 iperf3 --server --one-off >/dev/null &
	sleep 0.2
	ip netns exec end1 taskset -c 2 iperf3 --client 10.0.0.1 --bytes "$1"M >/dev/null
	wait $!
}
declare -A costs rates shares more
# measure NAME: each once, and twice as often, of which the difference counts.
measure() {
	local what count before exits_before time_before exits time spent cost line=$1
	for what in "${kinds[@]}"; do
		count=${what##* }
		for times in 1 3; do
			before=$(work)
			read -r exits_before time_before < <(exits)
			${what% *} $((count * times))
			spent[times]=$(($(work) - before))
			read -r exits time < <(exits)
			made[times]=$((exits - exits_before)) taken[times]=$((time - time_before))
		done
		cost=$(((spent[3] - spent[1]) / count / 2))
		((cost > 0 && cost < ${costs["$1 $what"]:-cost + 1})) && costs["$1 $what"]=$cost
		# In thousandths.
		rates["$1 $what"]=$(((made[3] - made[1]) * 500 / count))
		shares["$1 $what"]=$(((taken[3] - taken[1]) / count / 2))
		line+=" | $cost $(gojq -n "${rates["$1 $what"]} / 1000") ${shares["$1 $what"]}"
	done
	echo "$line"
}
kinds=('reads 4k 4000' 'reads 128k 500' 'sends 16')
without() {
	# The CPU that the realm gets otherwise.
	echo 0 >/sys/devices/system/cpu/cpu3/online
	measure without
	echo 1 >/sys/devices/system/cpu/cpu3/online
}
beside() {
	crtos up --cpus 3 --memory 128M --linux-dma "$1" || exit 1
	measure "$1"
	crtos down || fail down
}
# Not what comes first after the boot.
without
costs=()
for _ in 1 2 3; do
	without
	beside checked
	beside confined
done
# most HOW KIND THOUSANDTHS: it makes no more exits.
most() { [ "${rates["$1 $2"]}" -le "$3" ] || fail "$2, $1: ${rates["$1 $2"]} thousandths of exits"; }
most checked "${kinds[0]}" 200
most checked "${kinds[1]}" 400
most checked "${kinds[2]}" 60000
most confined "${kinds[0]}" 2200
most confined "${kinds[1]}" 66000
most confined "${kinds[2]}" 3300000
for what in "${kinds[@]}"; do
	without=${costs["without $what"]}
	for how in checked confined; do
		more[$how]=$((shares["$how $what"] * 1000 / without))
		exit=$((rates["$how $what"] ? shares["$how $what"] * 1000 / rates["$how $what"] : 0))
		echo "$what: $without ns, $how in the hypervisor ${shares["$how $what"]} ns," \
			"${more[$how]} permille more, $exit ns for each exit"
	done
	# Against interrupts and accidents alone: 3 percent.
	[ "${more[checked]}" -le 30 ] || fail "$what, checked: ${more[checked]} permille more"
done
exit $failed
