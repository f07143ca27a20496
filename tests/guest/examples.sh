#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The commands that README, the manual pages and `crtos VERB --help` show work as they stand there,
# one after the other. What runs for a minute or longer there does so for a second.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# mem: 3G
# devices: yes
# uarts: isa
# can: yes
# tier: full
# timeout: 900
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
modprobe -a kvaser_pci can_raw e1000e || exit 1
await '[ -e /sys/class/net/can0 ] && [ -e /sys/class/net/eth1 ]' || exit 1
ip link set can0 type can bitrate 500000

# What the examples name.
useradd alice
mkdir -p /etc/crtos
# A disk that nothing is mounted from.
card=$(lspci -d ::0108 | cut -d' ' -f1)
printf 'cpus = "3"\nmemory = "256M"\n' >other.toml
seq 100 >data
cat >control.c <<'C'
/* Wakes 5,000 times, each millisecond. */
#include <sched.h>
#include <sys/mman.h>
#include <time.h>
int main(void)
{
	const struct sched_param priority = { 80 };
	const struct timespec millisecond = { 0, 1000000 };
	if (mlockall(MCL_CURRENT | MCL_FUTURE) || sched_setscheduler(0, SCHED_FIFO, &priority))
		return 1;
	for (int i = 0; i < 5000; i++)
		nanosleep(&millisecond, 0);
}
C
gcc -O2 -o control control.c || exit 1

# shown VERB: the examples of `crtos VERB --help`, without what is said of them.
shown() {
	crtos "$1" --help | awk '/^Examples:/ { on = 1; next } /^$/ { on = 0 } on' | plain
}
# page FILE: the commands that a manual page shows.
page() {
	zcat -f "/usr/share/man/$1".gz | awk '/^\.nf/ { on = 1; next } /^\.fi/ { on = 0 } on' |
		sed 's/\\-/-/g' | grep -E '^(crtos|systemctl) ' | plain
}
plain() { sed 's/^ *//; s/ *#.*//; s/   *[A-Za-z].*//'; }
# here COMMANDS: what they are on this machine, and shorter.
here() {
	sed "s/03:00\.0/$card/; s/-D 60/-D 1/; s/--duration 60/--duration 1/
		s/\(1234\|PID\)$/\$(pidof control)/; s/--samples 10000/--samples 10/
		s/cyclictest -p 80$/& -D 1/; s/crtos top\b/& --iterations 1/
		s/^crtos bench$/& --figures getpid --loads none --samples 10/
		s/crtos-report-[0-9]*/\$(basename crtos-report-*.tar.gz .tar.gz)/"
}
# does COMMAND: runs one as it is typed. `crtos watch` ends with 3 if a job was late.
done=0
does() {
	local command status
	command=$(here <<<"$1")
	eval "$command" >out 2>&1 </dev/null
	status=$?
	case $status:$command in
	0:* | 3:crtos\ watch*) ;;
	*) fail "$1 ($command): status $status"; cat out ;;
	esac
	done=$((done + 1))
}
all() {
	local line
	while IFS= read -r line; do does "$line"; done
}

all < <(shown plan)
while IFS= read -r line; do
	does "$line"
	case $line in *--dry-run*) ;; *) crtos down || fail "down after $line" ;; esac
done < <(shown up)

crtos up --cpus 3 --memory 512M || exit 1
for verb in run trace latency; do all < <(shown $verb); done
crtos run ./control &
await 'crtos ps | grep -qw control' || fail 'no control'
all < <(shown watch)
wait
crtos cell create demo --cpus 2 --memory 16M || fail 'a cell for the device'
all < <(shown device)
crtos cell destroy demo || fail 'destroy the cell'
all < <(shown cell)
all < <(shown down | head -n 1)
all < <(shown seal)
wait
crtos down || fail 'down after seal'
all < <(shown link)
crtos down
crtos up --cpus 3 --memory 512M || exit 1
# The others are what the whole machine is measured by, for minutes and for a night.
all < <(shown bench | grep -e --samples -e --list)
all < <(shown report)
all < <(shown explain)
all < <(shown down | tail -n 1)
all < <(page man7/crtos.7)
all < <(page man5/realm.toml.5)

mapfile -t readme < <(
	awk '/^    crtos check/ { on = 1 } on && /^$/ { exit } on' /usr/share/doc/crtos/README.md | plain)
for line in "${readme[@]}"; do
	case $line in *PID*)
		crtos run ./control &
		await 'crtos ps | grep -qw control' || fail 'no control' ;;
	esac
	does "$line"
done
wait
echo "$done commands"
[ $done -ge 60 ] || fail 'some were not found'
exit $failed
