#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux resets the machine, switches it off, or starts another kernel: that ends a realm that is
# not locked. Beside a locked one it halts Linux, the cells hear of it, and a program goes on
# counting on a debug port at its rate. When the last locked cell has ended, the machine is reset.
# WAYS=0x92 KERNELS=6.1 chooses the ways with these letters.
# full: WAYS=all,KERNELS=both
# timeout: 9000
set -u
. tests/host/common/rate.sh
dir=$(mktemp -d)
vm=
trap '[ -z "$vm" ] || kill "$vm" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
size() { stat -c %s "$dir/port" 2>/dev/null || echo 0; }
failed=0

# guest KERNEL SCRIPT: boots.
guest() {
	rm -rf "$dir/port" "$dir/console" "$dir/share"
	mkdir "$dir/share"
	cp .cache/kernels/"$1"/boot/vmlinuz-* "$dir/share/vmlinuz"
	./x vm --no-realm --kernel "$1" --packages kexec-tools --debugcon "$dir/port" --on-panic wait \
		--console "$dir/console" --share "$dir/share" --timeout 900 -- "
		attack() { echo \"\$*\" >/sys/kernel/debug/attack; }
		insmod /usr/lib/crtos-tests/attack/\$(uname -r)/attack.ko
		$2
		sleep 600" </dev/null >"$dir/out" 2>&1 &
	vm=$!
}
# start KERNEL OPTION COMMAND: boots, starts a realm with a program that counts, and attacks.
start() {
	guest "$1" "
		sysctl -q kernel.sysrq=1
		crtos cell create witness --cpus 2 --memory 4M --port 0xe9 >/dev/null &&
			crtos cell start witness /usr/lib/crtos/inmates/prober.elf \
				--command-line 'idle-count tells' || exit 1
		crtos up --cpus 3 --memory 256M --port 0xe9 $2 || exit 1
		[ -z '$2' ] || crtos cell lock witness || exit 1
		crtos run -- \"\$PROGRAMS/counter\" 10000 &
		while :; do date >/mnt/share/beat; sleep 0.2; done &
		until [ -e /mnt/share/go ]; do sleep 0.2; done
		crtos cell doorbell witness
		sleep 1
		$3"
	until [ "$(size)" -gt 100 ]; do
		kill -0 $vm 2>/dev/null || return 1
		sleep 0.2
	done
	touch "$dir/share/go"
}
# hears: the cells hear that Linux was halted.
hears() {
	for _ in {1..600}; do
		grep -aqs S "$dir/port" && return
		kill -0 $vm 2>/dev/null || break
		sleep 0.2
	done
	return 1
}
# is_gone: the machine has ended.
is_gone() {
	for _ in {1..1200}; do
		kill -0 $vm 2>/dev/null || { wait $vm; vm=; return 0; }
		sleep 0.1
	done
	return 1
}
stop() { kill $vm 2>/dev/null; wait $vm 2>/dev/null; vm=; }
# ends KERNEL COMMAND: the machine ends, where the realm is not locked.
ends() {
	start "$1" '' "$2" || { cat "$dir/out"; return 1; }
	is_gone && return
	stop
	return 1
}
# stays KERNEL COMMAND: Linux is halted, and the program counts.
stays() {
	start "$1" --locked "$2" || { cat "$dir/out"; return 1; }
	# The witness says R while Linux runs, and S when it hears that Linux does not.
	local status=0
	hears && grep -aq R "$dir/port" || { echo 'the cells do not hear of it'; status=1; }
	kill -0 $vm 2>/dev/null || { cat "$dir/out"; vm=; return 1; }
	local beat
	beat=$(stat -c %y "$dir/share/beat")
	rate || { echo "$letters letters in 5 s"; status=1; }
	[ "$(stat -c %y "$dir/share/beat")" = "$beat" ] || { echo 'Linux goes on'; status=1; }
	stop
	return $status
}
# is_reset KERNEL ANSWER: Linux is halted by a port that only ACPI's tables name, as they do on
# other machines. The cell hears of it, and ends in this way; then the machine is reset.
is_reset() {
	local why=
	guest "$1" "
		attack resets 0x500 0x5a
		crtos cell create last --cpus 3 --memory 4M --port 0xe9 >/dev/null &&
			crtos cell start last /usr/lib/crtos/inmates/prober.elf \
				--command-line 'idle-count tells $2' &&
			crtos cell lock last || exit 1
		attack outb 0x500 0x5a"
	hears || why='the cell does not hear of it'
	[ -n "$why" ] || is_gone || why='the machine goes on'
	[ -n "$why" ] || return 0
	echo "$why"
	cat "$dir/out"
	stop
	return 1
}

# What ends the machine: what a hostile kernel does, and what any kernel does by itself.
resets=(
	'attack outb 0xcf9 0x06'
	'sysctl -q kernel.panic=1; echo c >/proc/sysrq-trigger'
	'attack outb 0x64 0xfe'
	'attack outb 0x92 0x01'
	'attack outw 0x604 0x2000'
	'echo b >/proc/sysrq-trigger'
	'reboot -f'
	'poweroff -f'
	'echo o >/proc/sysrq-trigger'
	'echo kbd >/sys/kernel/reboot/type; reboot -f'
)
# What does not end the machine beside cells that are not locked, either. The hypervisor parks a CPU
# with a triple fault, and Linux goes on without it. Another kernel takes memory for free in which
# the program lives. QEMU takes a word that reaches the reset register from the port before for one
# of that port, other chipsets need not.
others=(
	'attack triple'
	'echo triple >/sys/kernel/reboot/type; reboot -f'
	'kexec --load /mnt/share/vmlinuz --reuse-cmdline && kexec --exec'
	'attack outw 0xcf8 0x0600'
)
check() {
	local kernel=$1 command=$2
	stays "$kernel" "$command" || { echo "FAILED $kernel: the realm ends: $command"; failed=1; return; }
	echo "$kernel: $command: $letters letters in 5 s"
}
case ${KERNELS:-} in
'') kernels=6.12 ;;
both) kernels='6.1 6.12' ;;
*) kernels=$KERNELS ;;
esac
for kernel in $kernels; do
	chosen=("${resets[@]}") beside=("${others[@]}") answers=(agrees breaks)
	case ${WAYS:-few}/$kernel in
	all/*) ;;
	few/*) chosen=("${resets[0]}") beside=("${others[2]}") answers=(breaks) ;;
	*)
		readarray -t chosen < <(printf '%s\n' "${resets[@]}" | grep -F "$WAYS")
		readarray -t beside < <(printf '%s\n' "${others[@]}" | grep -F "$WAYS")
		readarray -t answers < <(printf '%s\n' "${answers[@]}" | grep -F "$WAYS")
		;;
	esac
	[ $((${#chosen[@]} + ${#beside[@]} + ${#answers[@]})) -gt 0 ] || { echo "no such way: $WAYS"; exit 1; }
	for command in "${chosen[@]}"; do
		ends "$kernel" "$command" ||
			{ echo "FAILED $kernel: without a lock, the realm survives: $command"; failed=1; }
		check "$kernel" "$command"
	done
	for command in "${beside[@]}"; do check "$kernel" "$command"; done
	for answer in "${answers[@]}"; do
		is_reset "$kernel" "$answer" ||
			{ echo "FAILED $kernel: no reset behind a cell that $answer"; failed=1; }
	done
done
exit $failed
