# SPDX-License-Identifier: MIT OR Apache-2.0
# What goes before each script of tests/guest: scripts are sent to the guest one by one.

# Complaints in Linux's log. That an interrupt took long, or that a real-time thread had a CPU for
# nearly a second, says something of a busy host only. QEMU notes interrupts for an APIC that is
# disabled by software, where processors drop them (APM vol. 2, APIC Software Enable): Linux finds
# the call that it sent to all CPUs while one of them came back.
complaints() {
	dmesg --level emerg,alert,crit,err,warn |
		grep -v -e 'hrtimer: interrupt took' -e 'sched: RT throttling activated' \
			-e 'APIC: Stale IRR: 10000000\(,00000000\)\{7\} ISR: 00000000'
}

# What Linux warns of only once, it warns of once in each script, also where scripts share a guest.
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug &&
	echo 1 >/sys/kernel/debug/clear_warn_once

# in_memory PROGRAM...: reads programs with their libraries. A wait for the host's disk takes any
# time in virtual time.
in_memory() {
	local program
	for program; do
		program=$(command -v "$program") || return
		ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | xargs cat "$program" >/dev/null
	done
}

# Free memory, with the pages in Linux's lists of each CPU.
free_kib() {
	echo 3 >/proc/sys/vm/drop_caches
	awk '/MemFree/ { kib += $2 } $1 == "count:" { kib += 4 * $2 } END { print kib }' /proc/meminfo /proc/zoneinfo
}

# all_free KIB: waits until as much memory is free as before, but for 8 MiB.
all_free() {
	local after missing
	for _ in {1..120}; do
		after=$(free_kib) missing=$(($1 - after))
		[ $missing -gt 8192 ] || break
		sleep 1
	done
	echo "free memory: $1 KiB before, $after KiB after"
	[ $missing -le 8192 ] || { echo 'more than 8 MiB are missing'; return 1; }
}

# await CONDITION [TENTHS]: waits until the shell line CONDITION is true, for so long that it never
# will be otherwise, or for so many tenths of a second.
await() { for _ in $(seq "${2-1200}"); do eval "$1" && return; sleep 0.1; done; return 1; }

# state CELL: what `crtos cell list` says of it; none if there is no such cell.
state() {
	crtos cell list --json |
		gojq -r --arg name "$1" '[.[] | select(.name == $name) | .state] | .[0] // "none"'
}

# attacker: loads the module of tests/attack.
attacker() { insmod "/usr/lib/crtos-tests/attack/$(uname -r)/attack.ko"; }

# attack COMMAND...: what that module answers. Called thousands of times, so without a program.
attack() {
	local line
	echo "$*" >/sys/kernel/debug/attack || return
	while IFS= read -r line; do printf '%s\n' "$line"; done </sys/kernel/debug/attack
}

# apic_id CPU: the id of its local APIC.
apic_id() {
	awk -F: -v wanted="$1" '
		/^processor/ { cpu = $2 + 0 }
		/^apicid/ && cpu == wanted { print $2 + 0 }' /proc/cpuinfo
}

# nmi_count CPU: how many NMIs it has handled.
nmi_count() { awk -v column=$(($1 + 2)) '/^ *NMI:/ { print $column }' /proc/interrupts; }

# handles_nmi CPU COUNT: whether it has handled more NMIs than that, or does soon.
handles_nmi() { await "[ \"\$(nmi_count $1)\" -gt $2 ]" 100; }

# there: says so in the realm.
there() { timeout 60 crtos run -- echo there; }

# hypercall EXPECTED CALL ARGUMENTS...: Linux makes a call of the hypervisor; the script's `fail` is
# told if it answers something else.
hypercall() {
	local expected=$1 got
	shift
	got=$(attack hypercall "$@")
	[ "$got" = "$expected" ] || fail "hypercall $*: $got, not $expected"
}

# goes_on PROGRAM WHAT: the realm, its program with that process id, and Linux go on after WHAT; the
# script's `fail` is told if not.
goes_on() {
	local program=$1 what=$2 cpu
	[ "$(crtos cell list --json | gojq -r '.[0].state')" = running ] || fail "$what: the realm ended"
	[ -d "/proc/$program" ] || fail "$what: the program ended"
	for cpu in 0 1; do
		[ "$(taskset -c $cpu echo there)" = there ] || fail "$what: nothing runs on CPU $cpu"
	done
}

# starts_waking: starts a program in the realm that wakes each millisecond, which is `program`.
starts_waking() {
	waking_since=$(date +%s%3N)
	crtos run -- "$PROGRAMS/periodic" 1000 1000 >/tmp/wake-ups &
	program=$!
}

# wakes_on: ends it. The script's `fail` is told if it did not wake all the time.
wakes_on() {
	local took wakeups
	kill $program
	took=$(($(date +%s%3N) - waking_since))
	wait $program
	read -r wakeups _ </tmp/wake-ups
	echo "$wakeups wake-ups in $took ms"
	[ "$wakeups" -ge $((took - 2000)) ] || fail 'the program in the realm was stopped'
}

# refused TEXT COMMAND...: the command fails, and says so, which stays in the file `err`; the
# script's `fail` is told if not.
refused() {
	local text=$1
	shift
	if "$@" 2>err; then fail "$* is not refused"; fi
	grep -q "$text" err || { fail "$*"; cat err; }
}

# nmi_exits CPU: how often it has left its guest because of an NMI, by which CPUs are called.
nmi_exits() {
	crtos stats --json | gojq --argjson cpu "$1" '.cpus[] | select(.cpu == $cpu) | .exits.nmi'
}

# tries_period LATEST COMMAND...: attacks while a program in the realm wakes each millisecond. Fails
# with 1 if a wake-up comes more than LATEST nanoseconds late, as lost ones do, and with 2 if the
# attack fails. In virtual time with short turns only.
tries_period() {
	local latest=$1 count least mean most status program
	shift
	chrt -f 80 crtos run -- "$PROGRAMS/periodic" 1000 1000000 >/tmp/period &
	program=$!
	await 'crtos ps | grep -qw $program' || return 2
	sleep 0.2
	"$@"
	status=$?
	sleep 0.1
	kill -TERM $program
	wait $program || return 2
	read -r count least mean most </tmp/period
	echo "$*: $count wake-ups, $least to $most ns late, $mean in the mean"
	[ $status = 0 ] || return 2
	[ "$count" -gt 100 ] && [ "$most" -le "$latest" ]
}

# keeps_period LATEST COMMAND...: what other virtual CPUs do in a wake-up counts there as well, so
# one of three tries has to be in time. An attack that fails is tried once.
keeps_period() {
	local status
	for _ in 1 2 3; do
		tries_period "$@"
		status=$?
		[ $status = 1 ] || return $status
	done
	return 1
}

# disk_goes_on ROUNDS: what is written to a disk that masters the bus is read again, while the realm
# comes and goes, and the hypervisor has the IOMMU meanwhile.
disk_goes_on() {
	local round disk confined
	modprobe -a nvme crtos || return 1
	await '[ -b /dev/nvme0n1 ]' || fail 'no disk'
	dmesg --clear
	fio --name=check --filename=/dev/nvme0n1 --direct=1 --ioengine=libaio --iodepth=8 \
		--bs=4k-64k --rw=randrw --size=64M --time_based --runtime=3600 --verify=crc32c \
		--verify_fatal=1 --do_verify=1 --verify_backlog=64 --output=fio.log &
	disk=$!
	for ((round = 0; round < $1; round++)); do
		crtos up --cpus 3 --memory 128M || { fail "up, round $round"; break; }
		confined=$(crtos stats --json |
			gojq -c '.hypervisor | [.iommus, .iommus_taken, .iommus_confining, .dma_missing]')
		[ "$confined" = '[1,1,1,0]' ] || fail "confined: $confined"
		crtos stats | grep -q '^protected: ' || fail "$(crtos stats | grep 'protected: ')"
		[ "$(there)" = there ] || fail 'run'
		sleep 1
		crtos down || { fail "down, round $round"; break; }
		[ -d /proc/$disk ] || { fail "the disk, round $round"; break; }
	done
	kill -INT $disk
	wait $disk
	grep -E "err=|IOPS" fio.log
	grep -q 'err= 0' fio.log || { cat fio.log; fail 'the disk has other contents'; }
	complaints | grep . && fail dmesg
	return 0
}
