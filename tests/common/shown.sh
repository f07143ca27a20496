# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# What Linux shows of an interface while the realm has its card. After `net`.

# told_of: what programs learn of interfaces in each way that there is.
told_of() {
	"$@" python3 list.py
	"$@" tcpdump -D 2>/dev/null | grep -o 'near\|far'
	"$@" ip -json address show dev near | gojq -c '.[0] | [.ifindex, .ifname, (.flags | sort), .mtu,
		.txqlen, .address, [.addr_info[] | .local, .prefixlen]]'
	"$@" cat /sys/class/net/near/{ifindex,address,mtu,flags,carrier,operstate}
}

# refused WHAT COMMAND...: root does not get that.
refused() {
	local what=$1
	shift
	! "$@" 2>/dev/null || fail "root has $what"
}

# without_routes WHEN: Linux reaches nothing by it, itself neither.
without_routes() {
	local found
	found=$(ip route show table all dev near)
	[ -z "$found" ] || fail "$1, Linux has routes by it: $found"
}

# shown: the script's `fail` is told what is not as it should be. In /sys it has its names.
shown() {
	local before index function first station round
	cat >list.py <<'PY'
import fcntl, socket
# Names and numbers by netlink; the rest by ioctls.
print(socket.if_nameindex(), socket.if_nametoindex("near"))
ASKED = {"flags": 0x8913, "address": 0x8915, "mask": 0x891b, "mtu": 0x8921,
         "hardware": 0x8927, "index": 0x8933, "queue": 0x8942}
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    for name, number in ASKED.items():
        print(name, fcntl.ioctl(s.fileno(), number, b"near".ljust(40, b"\0"))[16:24].hex())
PY
	cat >flood.py <<'PY'
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
    s.bind(("near", 0))
    for _ in range(int(sys.argv[1])):
        s.send(b"\xff" * 12 + b"\x88\xb5" + bytes(60))
PY
	await '[ "$(cat /sys/class/net/near/operstate)" = up ]'
	function=$(card_of near) function=${function##*/}
	before=$(told near) index=$(cat /sys/class/net/near/ifindex)
	station=$(cat /sys/class/net/near/address)
	told_of >linux
	dmesg -C
	crtos up --cpus 3 --memory 256M --device near || exit 1
	linked || fail 'there is no link'
	await '[ "$(cat /sys/class/net/near/operstate 2>&1)" = up ]' 100
	told_of >meanwhile
	told_of timeout 60 crtos run -- >realm
	cat realm
	diff linux meanwhile || fail 'Linux shows something else meanwhile'
	diff linux realm || fail 'the realm sees something else'
	[ "$(driver_of near)" = crtos ] || fail "its driver is $(driver_of near)"
	without_routes 'at first'
	if command -v ethtool >/dev/null; then
		ethtool -i near | grep -qx 'driver: crtos' || fail "$(ethtool -i near)"
		ethtool -i near | grep -qx "bus-info: $function" || fail "$(ethtool -i near)"
	fi

	# The station at its address is the realm, on the wire, not Linux itself.
	busybox ping -q -c 2 -W 5 10.9.0.1 >/dev/null || fail 'the realm does not answer'
	ip neigh show dev far | grep -q "10.9.0.1 .*$station" || fail "$(ip neigh show dev far)"

	# Root.
	modprobe -aq bridge macvlan 8021q
	for round in up down; do
		ip link set near $round
		refused "another name, $round" ip link set near name other
		refused 'another address' ip link set near address 02:00:00:00:00:07
		refused 'another MTU' ip link set near mtu 1400
		refused 'deleted it' ip link delete near
		without_routes "$round"
	done
	ip link set near up
	without_routes 'up again'
	ip netns add elsewhere
	refused 'moved it' ip link set near netns elsewhere
	ip link add name bridge0 type bridge && refused 'a bridge' ip link set near master bridge0
	refused 'a macvlan' ip link add link near name vlan0 type macvlan
	refused 'a VLAN' ip link add link near name vlan0 type vlan id 5
	ip link delete bridge0
	ip netns delete elsewhere
	refused 'a route' ip route add 10.77.0.0/16 dev near
	refused 'a way out' ip route add default via 10.9.0.2 dev near
	# As services do that set interfaces up.
	ip address add 10.55.0.1/24 dev near
	without_routes 'with another address'
	busybox ping -q -c 1 -W 1 10.55.0.1 >/dev/null 2>&1 && fail 'Linux talks to itself'
	ip address delete 10.55.0.1/24 dev near
	first=$(cat /sys/class/net/far/statistics/rx_packets)
	python3 flood.py 20000
	[ $(($(cat /sys/class/net/far/statistics/rx_packets) - first)) -lt 100 ] || fail 'it sends'
	[ "$(cat /sys/class/net/near/statistics/tx_dropped)" -ge 20000 ] || fail 'nothing is dropped'
	! command -v ethtool >/dev/null || ethtool -S near | grep 'dropped_of_linux: 20' || fail 'no count'
	refused 'the module' rmmod crtos
	busybox ping -q -c 2 -W 5 10.9.0.1 >/dev/null || fail 'the realm does not answer after that'
	told_of >meanwhile
	diff linux meanwhile || fail 'Linux shows something else after that'
	linked || fail 'there is no link after that'

	# By its name it goes and comes.
	crtos device add near 2>why && fail 'it is given twice'
	grep -q 'crtos device remove' why || fail "$(cat why)"
	crtos device remove near || fail 'it is not given back'
	[ "$(driver_of near)" != crtos ] || fail 'its stand-in is there still'
	await '[ "$(told near 2>&1)" = "$before" ]' 100 || fail "removed $(told near), before $before"
	# One that is in the way.
	ip link add name bridge0 index "$index" type bridge
	crtos device add near 2>why && fail 'its number is another one'"'s"
	grep -q "number $index" why || fail "$(cat why)"
	ip link delete bridge0
	[ "$(driver_of near)" != crtos ] || fail 'it is taken and not shown'
	await '[ "$(told near 2>&1)" = "$before" ]' 100 || fail "refused $(told near), before $before"
	crtos device add near || fail 'it does not come again'
	linked || fail 'there is no link when it has come again'
	await '[ "$(cat /sys/class/net/near/operstate 2>&1)" = up ]' 100
	told_of >meanwhile
	diff linux meanwhile || fail 'Linux shows something else when it has come again'

	# The machine loses the card.
	echo 1 >"/sys/bus/pci/devices/$function/remove"
	[ ! -e /sys/class/net/near ] || fail 'a card that is gone is shown'
	echo 1 >/sys/bus/pci/rescan
	crtos down || fail down
	await '[ "$(told near 2>&1)" = "$before" ]' 100 || fail "afterwards $(told near), before $before"

	# Killed commands.
	for round in 0.3 0.6 0.9 1.2 1.5; do
		crtos up --cpus 3 --memory 256M --device near &
		sleep $round
		kill -9 $!
		wait $!
		crtos down --force >/dev/null 2>&1
		await '[ "$(told near 2>&1)" = "$before" ]' 100 || fail "kill $round: $(told near)"
		[ "$(driver_of near)" != crtos ] || fail "kill $round: a stand-in is left"
	done
	complaints | grep -v 'AMD Zen1' | grep . && fail dmesg
}
