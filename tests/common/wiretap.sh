# SPDX-License-Identifier: MIT OR Apache-2.0
# shellcheck shell=bash
# Debian's programs that look at a network or make frames, under Linux and in the realm, whatever
# cards the guest has. After `net`.

apart() {
	ip link set far netns other && "${far[@]}" ip address add 10.9.0.2/24 dev far &&
		"${far[@]}" ip link set far up && await '"${far[@]}" cat /sys/class/net/far/carrier | grep -q 1'
}
together() {
	"${far[@]}" ip link set far netns 1 && ip address add 10.9.0.2/24 dev far && ip link set far up &&
		await '[ "$(cat /sys/class/net/far/carrier)" = 1 ]'
}

# hears FILE: waits until what writes there has begun to listen.
hears() { await "grep -q '$2' $1"; }

programs() {
	echo '== python hears'
	"${run[@]}" python3 hear.py near 88b5 5 2>began &
	hears began hears
	"${far[@]}" python3 send.py far 88b5 5
	wait $!; echo "status $?"

	echo '== python sends'
	timeout 60 "${far[@]}" python3 hear.py far 88b5 5 2>began >heard &
	listener=$!
	hears began hears
	"${run[@]}" python3 send.py near 88b5 5; echo "status $?"
	wait $listener; cat heard

	echo '== tcpdump'
	"${run[@]}" tcpdump -i near -n -c 3 -t -e -x ether proto 0x88b5 2>began >dumped &
	hears began 'listening on'
	"${far[@]}" python3 send.py far 88b6 3
	"${far[@]}" python3 send.py far 88b5 3
	wait $!; echo "status $?"
	sed 's/..:..:..:..:..:.. >/station >/' dumped
	grep -c 'listening on near, link-type EN10MB' began

	echo '== tcpdump of what is sent'
	"${run[@]}" tcpdump -i near -n -c 2 -t -w dump ether proto 0x88b5 2>began &
	hears began 'listening on'
	sleep 1
	"${run[@]}" python3 send.py near 88b5 2
	wait $!; echo "status $?"
	tcpdump -t -n -r dump 2>/dev/null | sed 's/..:..:..:..:..:.. >/station >/'

	echo '== arping'
	"${run[@]}" arping -I near -c 2 -w 20 10.9.0.2 >answers; echo "status $?"
	grep -c '(10.9.0.2)' answers
	"${run[@]}" arping -I near -c 1 -w 1 10.9.0.77 >answers; echo "status $?"

	echo '== another interface'
	"${run[@]}" python3 send.py none 88b5 1 2>&1 | tail -1
}

# wiretap: does all of it; the script's `fail` is told what is not as it is under Linux.
wiretap() {
	wire || exit 1
	run=(timeout 60)
	# The other end answers as another machine does.
	ip netns add other || exit 1
	far=(ip netns exec other)
	"${far[@]}" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
	cat >send.py <<'PY'
import socket, sys
# NAME PROTOCOL COUNT: frames for all, whose first byte counts.
name, protocol, count = sys.argv[1], int(sys.argv[2], 16), int(sys.argv[3])
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as s:
    s.bind((name, 0))
    for number in range(count):
        header = b'\xff' * 6 + s.getsockname()[4] + protocol.to_bytes(2, 'big')
        s.send(header + bytes([number]) * 60)
PY
	cat >hear.py <<'PY'
import socket, sys
# NAME PROTOCOL COUNT: what comes of that protocol.
name, protocol, count = sys.argv[1], int(sys.argv[2], 16), int(sys.argv[3])
with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(protocol)) as s:
    s.bind((name, protocol))
    s.settimeout(30)
    print('hears', file=sys.stderr, flush=True)
    for _ in range(count):
        data, (where, kind, pkttype, hatype, station) = s.recvfrom(2000)
        print(where, hex(kind), pkttype, hatype, len(data), data[0])
PY

	apart || exit 1
	programs >natively 2>&1
	up() { crtos up --cpus 3 --memory 256M --device "$@"; }
	before=$(told near)

	# What Linux needs is not taken.
	ip route add default via 10.9.0.9 dev near || exit 1
	up near 2>why && fail 'Linux loses its way out'
	grep -q 'reaches default by it' why || fail "$(cat why)"
	ip route del default
	ip link set near mtu 9000
	up near 2>why && fail 'frames are too long'
	ip link set near mtu 1500
	timeout 60 tcpdump -i near -w /dev/null 2>began &
	hears began 'listening on'
	up near 2>why && fail 'a program hears it'
	kill $!
	wait $!

	run=(timeout 60 crtos run --)
	address=$(card_of near)
	up "${address##*/}" || exit 1
	linked || fail "there is no link in the realm"
	programs >realm 2>&1
	diff natively realm || fail 'not alike'
	cat realm
	together || exit 1
	crtos stats | grep near || fail 'it is not among the devices'

	# Linux's own interface from the realm.
	timeout 60 crtos run -- python3 hear.py far 88b5 2 2>began >heard &
	listener=$!
	hears began hears
	crtos run -- python3 send.py near 88b5 2
	wait $listener || fail 'an interface of Linux is not heard'

	# In use, it is not given back; unused it is.
	crtos run -- python3 hear.py near 88b5 1 2>began &
	hears began hears
	crtos device remove "${address##*/}" 2>why && fail 'it is taken from a program'
	grep -q python3 why || fail "$(cat why)"
	kill -9 $!
	wait $!
	crtos device remove "${address##*/}" || fail 'it is not given back'
	[ "$(driver_of near)" != crtos ] || fail 'it is there still'
	crtos device add "${address##*/}" || fail 'it does not come again'
	linked || fail 'there is no link when it has come again'
	timeout 60 python3 hear.py far 88b5 3 2>began >heard &
	listener=$!
	hears began hears
	crtos run -- python3 send.py near 88b5 3 || fail 'it does not send'
	wait $listener || fail 'it has sent nothing'
	crtos down || exit 1
	await '[ "$(cat /sys/class/net/near/carrier)" = 1 ]'
	[ "$(told near)" = "$before" ] || fail "afterwards $(told near), before $before"

	# A command that is killed when it has taken the interface; a later one makes that good.
	crtos up --cpus 3 --memory 256M --device near &
	await '[ "$(driver_of near)" = crtos ]'
	kill -9 $!
	wait $!
	crtos down 2>/dev/null
	await '[ "$(cat /sys/class/net/near/carrier)" = 1 ]'
	[ "$(told near)" = "$before" ] || fail "after a killed command $(told near), before $before"
	ip netns del other
}
