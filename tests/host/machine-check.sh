#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Machine checks on a CPU of the realm: one that was corrected is told; one in a page of a program
# is that program's, which takes a signal, or ends where it cannot go on, and the page is given up;
# any other one, also one that comes together with that, stops the real-time kernel with a report,
# and Linux goes on. One on a CPU that waits in the hypervisor stops that CPU with a report, one on
# a CPU of Linux ends Linux; the realm goes on after both.
# tier: full
# full: KERNELS=both
# timeout: 1800
set -u
dir=$(mktemp -d)
trap 'kill $vm $log 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
failed=0
fail() { echo "FAILED on $kernel: $*"; failed=1; }
size() { stat -c %s "$port"; }

# In the guest. Bits of a status: there is an error, which is reported; it has an address; it was
# not corrected; what is wrong was used, and was marked before; what the processor was doing is
# lost. Global: what came before the instruction is done, the instruction has to do with it, one is
# in progress.
guest='
valid=0x9000000000000000 address=0x0400000000000000 uncorrected=0x2000000000000000
poison=$((address | uncorrected | 0x80000000000)) lost=0x0200000000000000
restartable=1 this=2 progress=4
fail() { echo "FAILED $*"; exit 1; }
await() { for _ in {1..1200}; do eval "$1" && return; sleep 0.1; done; return 1; }
# inject [CPU BANK STATUS GLOBAL ADDRESS]...: the host has QEMU do it, at once.
injected=0
inject() {
	injected=$((injected + 1))
	echo stop >/mnt/share/new
	while [ $# -gt 0 ]; do
		printf "mce %u %u %#x %#x %#x 0\n" $1 $2 $(($3)) $(($4)) $(($5)) >>/mnt/share/new
		shift 5
	done
	echo cont >>/mnt/share/new
	mv /mnt/share/new /mnt/share/inject-$injected
	await "[ -e /mnt/share/done-$injected ]" || fail "the host does not inject"
}
# Where a page of a process lies in memory.
lies_at() {
	local word
	# od(1) would read up to there.
	word=$(dd if=/proc/$1/pagemap bs=8 skip=$(($2 / 4096)) count=1 2>/dev/null |
		od -An -tu8 | tr -d " ")
	echo $(((word & 0x7fffffffffffff) * 4096))
}
crtos up --cpus 3 --memory 256M || fail up
inject 3 1 valid+address 0 0x1234000
corrected="corrected an error: bank 1 status 0x9400000000000000 address 0x1234000"
# A CPU looks when it becomes idle, once a second.
await "crtos run -- busybox true; crtos log | grep -q \"\$corrected\"" ||
	fail "nobody tells what was corrected"
sleep 3
crtos run -- busybox true
[ "$(crtos log | grep -c "$corrected")" = 1 ] || fail "it is told again"
# second_byte PROCESS ADDRESS: the one behind that.
second_byte() { dd if=/proc/$1/mem bs=1 skip=$(($2 + 1)) count=1 2>/dev/null | od -An -tu1; }
# begin [shared]: has a program read a page. It is in the kernel until its line is printed.
begin() {
	rm -f /tmp/said
	crtos run -- "$PROGRAMS/broken" /tmp/file $1 >/tmp/said &
	await "grep -qs 0x /tmp/said" || fail "the program does not start"
	await "[ \$(second_byte $! $(cat /tmp/said)) = 8 ]" || fail "the program does not read"
	page=$(lies_at $! $(cat /tmp/said))
}
begin
inject 3 0 valid+poison restartable+this+progress page+40
wait $! || { cat /tmp/said; crtos log | tail -3; fail "the program whose page is broken"; }
grep -q fine /tmp/said || fail "the program says nothing"
begin
inject 3 0 valid+poison this+progress page+40
wait $!
status=$?
[ $status = 137 ] || { cat /tmp/said; fail "the program that cannot go on: $status"; }
# `poll` would tell again of what is still in a bank.
sleep 3
crtos run -- busybox true || { crtos log | tail -3; fail "no other program starts"; }
crtos log | grep "could not correct" && fail "the bank still has what was taken"
# stops WORDS WHAT: the kernel reports that. Another realm begins.
stops() {
	await "crtos log | grep -q \"machine check: $1\"" ||
		{ cat /tmp/said; crtos log | tail -3; fail "no report of $2"; }
	crtos log | grep "machine check: $1"
	crtos down --force || fail "down after $2"
	crtos up --cpus 3 --memory 256M || fail "up after $2"
}
inject 3 0 valid+uncorrected+lost restartable+progress 0
stops "bank 0 status 0xb200000000000000" "what is lost"
# Bank 1 raises nothing by itself.
begin
inject 3 1 valid+lost 0 0 3 0 valid+poison restartable+this+progress page+40
stops "bank 1 status 0x9200000000000000" "what is lost beside a page"
begin
inject 3 1 valid+poison 0 page+8192 3 0 valid+poison restartable+this+progress page+40
stops "bank 1 status 0xb400080000000000 .*, rip" "two pages"
begin shared
inject 3 0 valid+poison restartable+this+progress page+40
stops "memory at $(printf %#x $((page + 40))) is not of one program alone" "a page of several programs"
crtos down || fail down
# A CPU whose cell was stopped waits in the hypervisor.
crtos cell create idle --cpus 2 --memory 4M &&
	crtos cell start idle /usr/lib/crtos/inmates/prober.elf --command-line idle-count &&
	crtos cell stop idle || fail "a cell"
# Locked: plain Linux 6.1 resets the machine a second after its panic, whatever kernel.panic says.
crtos up --cpus 3 --memory 256M --port 0xe9 --locked || fail "up again"
crtos run -- "$PROGRAMS/counter" 10000 &
until [ -e /mnt/share/end ]; do sleep 0.2; done
inject 2 0 valid+uncorrected+lost progress 0
await "crtos log | grep \"hypervisor: machine check: bank 0 status 0xb200000000000000\"" ||
	fail "the hypervisor does not tell"
# Without a time of its own, Linux resets the machine 30 s after a machine check.
echo 10000 >/proc/sys/kernel/panic
inject 1 0 valid+uncorrected+lost progress 0
sleep 100'

kernels=(6.12)
[ -z "${KERNELS:-}" ] || kernels=(6.1 6.12)
for kernel in "${kernels[@]}"; do
	port=$dir/port-$kernel console=$dir/console-$kernel
	share=$dir/share-$kernel pipe=$dir/$kernel
	next=1
	mkdir "$share"
	mkfifo "$pipe.in" "$pipe.out"
	cat "$pipe.out" >"$pipe.log" & log=$!
	./x vm --kernel $kernel --no-realm --monitor "$pipe" --debugcon "$port" --on-panic wait \
		--console "$console" --share "$share" --timeout 800 -- "$guest" & vm=$!
	while kill -0 $vm 2>/dev/null && ! grep -qs 'Kernel panic' "$console"; do
		if [ -e "$share/inject-$next" ]; then
			cat "$share/inject-$next" >"$pipe.in"
			touch "$share/done-$next"
			next=$((next + 1))
		fi
		[ "$(size 2>/dev/null || echo 0)" -gt 100 ] && touch "$share/end"
		sleep 0.2
	done
	if grep -qs 'Kernel panic.*machine check' "$console"; then
		# What the realm writes from now on.
		before=$(size)
		for _ in {1..100}; do
			[ "$(size)" -gt $((before + 300)) ] && break
			sleep 1
		done
		[ "$(size)" -gt $((before + 300)) ] || fail 'the realm stops with Linux'
		echo "$kernel: $(($(size) - before)) letters since Linux panicked"
	else
		fail 'Linux does not panic'
		tail -n 5 "$console"
		grep -ao 'CPU [0-9]*: [^(]*' "$pipe.log"
	fi
	kill $vm $log 2>/dev/null
	wait $vm $log 2>/dev/null
done
exit $failed
