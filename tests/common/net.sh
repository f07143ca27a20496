# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Two network cards on one wire.

# cards: the interfaces of both, in the order of their PCI functions.
cards() {
	local place
	for place in /sys/bus/pci/drivers/{e1000e,igb}/0000*/net/* \
		/sys/bus/pci/drivers/virtio-pci/0000*/virtio*/net/*; do
		[ ! -e "$place" ] || echo "${place##*/}"
	done
}

# card_of NAME: the folder of its PCI function.
card_of() {
	local place
	place=$(readlink -f "/sys/class/net/$1/device")
	case ${place##*/} in virtio*) place=${place%/*} ;; esac
	echo "$place"
}

# driver_of NAME: what Linux says drives it; crtos while the realm has its card.
driver_of() {
	local driver
	driver=$(readlink "/sys/class/net/$1/device/driver")
	echo "${driver##*/}"
}

# wire: gives them the names near and far, and addresses. Linux sends nothing on its own.
wire() {
	local names=()
	modprobe -a e1000e igb virtio_net af_packet crtos || return 1
	await '[ "$(cards | wc -l)" = 2 ]' || return 1
	mapfile -t names < <(cards)
	sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
	ip link set "${names[0]}" down name near && ip link set "${names[1]}" down name far || return 1
	ip address replace 10.9.0.1/24 dev near || return 1
	ip address replace 10.9.0.2/24 dev far || return 1
	ip link set near up && ip link set far up || return 1
	await '[ "$(cat /sys/class/net/{near,far}/carrier)" = $'"'1\n1'"' ]'
}

# told NAME: what Linux knows of an interface.
told() {
	ip -json address show dev "$1" |
		gojq -c '.[0] | [.ifname, (.flags | sort), .mtu, .txqlen, .address, [.addr_info[] | .local, .prefixlen]]'
}

# linked: waits until near, of the realm, has found its link. Needs Python.
linked() {
	cat >linked.py <<-'PY'
		import fcntl, socket, sys
		with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
		    s.bind(("near", 0))
		    flags = fcntl.ioctl(s.fileno(), 0x8913, b"near".ljust(40, b"\0"))[16]
		sys.exit(not flags & 0x40)
	PY
	await 'crtos run -- python3 linked.py' 100
}
