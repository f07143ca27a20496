#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Linux resets the machine, switches it off, or starts another kernel: that ends a realm that is
# not locked. Beside a locked one it halts Linux, the cells hear of it, and a program goes on
# counting on a debug port at its rate. WAYS=0x92 KERNELS=6.1 chooses the ways with these letters.
# full: WAYS=all
# timeout: 9000
set -u
. tests/host/common/rate.sh
dir=$(mktemp -d)
vm=
trap '[ -z "$vm" ] || kill "$vm" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
size() { stat -c %s "$dir/port" 2>/dev/null || echo 0; }
failed=0

# start KERNEL OPTION COMMAND: boots, starts a realm with a program that counts, and attacks.
start() {
	rm -rf "$dir/port" "$dir/console" "$dir/share"
	mkdir "$dir/share"
	cp .cache/kernels/"$1"/boot/vmlinuz-* "$dir/share/vmlinuz"
	./x vm --no-realm --kernel "$1" --packages kexec-tools --debugcon "$dir/port" --on-panic wait \
		--console "$dir/console" --share "$dir/share" --timeout 900 -- "
		attack() { echo \"\$*\" >/sys/kernel/debug/attack; }
		insmod /usr/lib/crtos-tests/attack/\$(uname -r)/attack.ko
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
		$3
		sleep 600" </dev/null >"$dir/out" 2>&1 &
	vm=$!
	until [ "$(size)" -gt 100 ]; do
		kill -0 $vm 2>/dev/null || return 1
		sleep 0.2
	done
	touch "$dir/share/go"
}
stop() { kill $vm 2>/dev/null; wait $vm 2>/dev/null; vm=; }
# ends KERNEL COMMAND: the machine ends, where the realm is not locked.
ends() {
	start "$1" '' "$2" || { cat "$dir/out"; return 1; }
	for _ in {1..1200}; do
		kill -0 $vm 2>/dev/null || { wait $vm; vm=; return 0; }
		sleep 0.1
	done
	stop
	return 1
}
# stays KERNEL COMMAND: Linux is halted, and the program counts.
stays() {
	start "$1" --locked "$2" || { cat "$dir/out"; return 1; }
	# The witness says R while Linux runs, and S when it hears that Linux does not.
	local status=0
	for _ in {1..600}; do
		grep -aq S "$dir/port" && break
		kill -0 $vm 2>/dev/null || { cat "$dir/out"; vm=; return 1; }
		sleep 0.2
	done
	grep -aq R "$dir/port" && grep -aq S "$dir/port" || { echo 'the cells do not hear of it'; status=1; }
	local beat
	beat=$(stat -c %y "$dir/share/beat")
	rate || { echo "$letters letters in 5 s"; status=1; }
	[ "$(stat -c %y "$dir/share/beat")" = "$beat" ] || { echo 'Linux goes on'; status=1; }
	stop
	return $status
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
for kernel in ${KERNELS:-6.1 6.12}; do
	chosen=("${resets[@]}") beside=("${others[@]}")
	case ${WAYS:-few}/$kernel in
	all/*) ;;
	few/6.1) chosen=("${resets[0]}") beside=("${others[2]}") ;;
	few/*) chosen=("${resets[1]}") beside=("${others[0]}") ;;
	*)
		readarray -t chosen < <(printf '%s\n' "${resets[@]}" | grep -F "$WAYS")
		readarray -t beside < <(printf '%s\n' "${others[@]}" | grep -F "$WAYS")
		;;
	esac
	[ "${#chosen[@]}" -gt 0 ] || [ "${#beside[@]}" -gt 0 ] || { echo "no such way: $WAYS"; exit 1; }
	for command in "${chosen[@]}"; do
		ends "$kernel" "$command" ||
			{ echo "FAILED $kernel: without a lock, the realm survives: $command"; failed=1; }
		check "$kernel" "$command"
	done
	for command in "${beside[@]}"; do check "$kernel" "$command"; done
done
exit $failed
