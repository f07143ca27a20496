# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# How long a frame takes.

# frames_take: how many instructions a frame takes, under Linux and in the realm.
frames_take() {
	cd "$(mktemp -d)" || exit 1
	failed=0
	fail() { echo "FAILED $*"; failed=1; }
	# What the realm's way may take, in instructions: in the median, and at most, which has
	# turns of other CPUs in it when they work.
	count=200
	declare -A bound=([there]=5000 [back]=15000 [above]=5000)
	declare -A limit=([there]=15000 [back]=40000 [above]=15000)
	program=$PROGRAMS/net-latency
	in_memory crtos "$program" ip chrt taskset jq
	wire || exit 1
	for place in near far; do
		for line in "$(card_of $place)"/msi_irqs/*; do
			echo 3 >"/proc/irq/${line##*/}/smp_affinity_list"
		done
	done
	echo -1 >/proc/sys/kernel/sched_rt_runtime_us

	# measure PLACE COMMAND...: both, one after the other.
	measure() {
		local place=$1 way median most
		shift
		for way in there back above; do
			# shellcheck disable=SC2086
			read -r median most < <("$@" "$program" near far $count ${way/there/}) ||
				fail "nothing measured in $place"
			echo "$place: $count frames $way, median $median ns, maximum $most ns"
			[ "$place" != realm ] || [ "$median" -le "${bound[$way]}" ] ||
				fail "$way: more than ${bound[$way]} ns"
			[ "$place" != realm ] || [ "$most" -le "${limit[$way]}" ] ||
				fail "$way: more than ${limit[$way]} ns at most"
		done
	}
	measure "Linux $(uname -r)" taskset -c 3
	crtos up --cpus 3 --memory 256M --device near --device far || exit 1
	measure realm crtos run --
	crtos log | grep 'interrupts too often' && fail 'an ordinary program has it silenced'
	crtos down || fail down
	echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
	exit $failed
}
