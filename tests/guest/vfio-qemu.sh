#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# A whole virtual machine drives a network card by VFIO, under Linux and then in the realm: QEMU, as
# Debian has it, boots by the network. The firmware in it gets an address and a script over the
# card, by transfers to the machine's memory.
# kernels: 6.12
# more kernels: 6.1
# realm: no
# devices: yes
# mem: 3G
# uses: vfio
# packages: qemu-system-x86,ipxe-qemu,dnsmasq-base
# tier: full
# timeout: 1200
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
mapfile -t cards < <(grep -lx 0x10d3 /sys/bus/pci/devices/*/device | cut -d/ -f6)
[ ${#cards[@]} -ge 2 ] || { echo 'there are no two cards'; exit 1; }
modprobe -a e1000e af_packet
await 'ls "/sys/bus/pci/devices/${cards[1]}/net/"' || { echo 'no card of Linux'; exit 1; }
far=$(ls "/sys/bus/pci/devices/${cards[1]}/net")
drives_by_vfio "${cards[0]}" || exit 1
ip link set "$far" up
ip address add 10.9.9.1/24 dev "$far"
mkdir tftp
printf '#!ipxe\necho The script runs\n' >tftp/script
dnsmasq -k -u root -i "$far" --bind-interfaces -p 0 --dhcp-range=10.9.9.50,10.9.9.60 \
	--dhcp-boot=script --enable-tftp --tftp-root="$PWD/tftp" --log-facility="$PWD/dnsmasq.log" &

# boots WHERE COMMAND...: QEMU, started by that command, has run the script.
boots() {
	local where=$1 machine
	shift
	"$@" qemu-system-x86_64 -accel tcg -M pc,graphics=off -m 64 -nodefaults -display none \
		-device "vfio-pci,host=${cards[0]},romfile=/usr/lib/ipxe/qemu/pxe-e1000e.rom" \
		-boot n -serial "file:$where.serial" >"$where.out" 2>&1 &
	machine=$!
	await "grep -asq 'The script runs' $where.serial" 3000 || fail "$where: it does not boot"
	kill $machine
	wait $machine
	# A dot more or less says how long the transfer took.
	tr -d '\r' <"$where.serial" | strings | grep -a -e '^net0: 10' -e '^tftp' -e '^The script' |
		sed 's/\.\.\.* / /' | tee "$where.seen"
	[ -s "$where.seen" ] && return
	fail "$where: nothing is seen"
	tail -20 "$where.serial" "$where.out" dnsmasq.log
}

boots linux timeout 600
crtos up --cpus 2,3 --memory 768M || exit 1
crtos device add "${cards[0]}" --no-reset || { fail 'device add'; crtos log; }
boots realm timeout 600 crtos run --renumber-cpus --
diff linux.seen realm.seen || fail 'other than under Linux'
crtos device remove "${cards[0]}" || fail 'device remove'
crtos down || fail down
exit $failed
