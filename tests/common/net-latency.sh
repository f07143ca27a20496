# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# How long a frame takes.

# frames_take: how many instructions a frame takes, under Linux and in the realm.
frames_take() {
	cd "$(mktemp -d)" || exit 1
	failed=0
	fail() { echo "FAILED $*"; failed=1; }
	# What the realm's way may take, in instructions: in the median, and at most, which has
	# turns of other CPUs in it when they work, so that it counts if it comes three times.
	count=200
	declare -A bound=([there]=5000 [back]=15000 [above]=5000)
	declare -A limit=([there]=15000 [back]=40000 [above]=15000)
	program=$PROGRAMS/net-latency
	in_memory crtos "$program" ip chrt taskset gojq
	wire || exit 1
	for place in near far; do
		for line in "$(card_of $place)"/msi_irqs/*; do
			echo 3 >"/proc/irq/${line##*/}/smp_affinity_list"
		done
	done
	echo -1 >/proc/sys/kernel/sched_rt_runtime_us

	# measure WAY PLACE COMMAND...: how long frames take that way.
	measure() {
		local way=$1 place=$2
		shift 2
		# shellcheck disable=SC2086
		"$@" "$program" near far $count ${way/there/} >found || fail "$way in $place"
		read -r median most <found
		echo "$place: $count frames $way, median $median ns, maximum $most ns"
	}
	for way in there back above; do measure $way "Linux $(uname -r)" taskset -c 3; done
	crtos up --cpus 3 --memory 256M --device near --device far || exit 1
	for way in there back above; do
		for _ in {1..3}; do
			measure $way realm crtos run --
			[ "$most" -gt "${limit[$way]}" ] || break
		done
		[ "$median" -le "${bound[$way]}" ] || fail "$way: more than ${bound[$way]} ns"
		[ "$most" -le "${limit[$way]}" ] || fail "$way: more than ${limit[$way]} ns at most"
	done
	crtos log | grep 'interrupts too often' && fail 'an ordinary program has it silenced'
	crtos down || fail down
	echo 950000 >/proc/sys/kernel/sched_rt_runtime_us
	exit $failed
}
