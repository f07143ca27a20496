#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's programs that measure networks, serve files and try out ports do over an interface of the
# realm what they do over one of Linux: qperf, sockperf, nuttcp, iperf with a group; lighttpd,
# dropbear, rsync; ping, fping, traceroute and mtr by raw sockets; nmap, arp-scan, scapy with frames
# of their own.
# kernels: 6.12
# realm: no
# devices: yes
# packages: qperf,sockperf,nuttcp,iperf,lighttpd,apache2-utils,curl,dropbear-bin,rsync,nmap,arp-scan
# packages: python3-scapy,netcat-openbsd,iputils-ping,fping,traceroute,mtr-tiny
# uses: net peer
# timeout: 900
# tier: full
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
wire && peer || exit 1
crtos up --cpus 3 --memory 256M --device near || exit 1
here() { timeout 60 crtos run -- "$@"; }
# answers PORT: waits until somebody here does.
answers() { await "over_there nc -z -w 1 10.9.0.1 $1" 100 || fail "nobody at port $1"; }
head -c 300000 /dev/urandom >file
sum=$(md5sum <file)

# What measures. A program of the realm is the client, and names an owner of its socket (qperf).
there qperf >/dev/null 2>&1 &
listens 19765
here qperf -t 1 10.9.0.2 tcp_bw tcp_lat udp_lat udp_bw || fail qperf
there sockperf sr --tcp -i 10.9.0.2 >/dev/null 2>&1 &
listens 11111
here sockperf pp --tcp -i 10.9.0.2 -t 1 | grep -a 'Summary: Latency' || fail sockperf
there nuttcp -S --nofork -1 >/dev/null 2>&1 &
listens 5000
here nuttcp -t -n 1m 10.9.0.2 || fail 'nuttcp, to Linux'
there nuttcp -S --nofork -1 >/dev/null 2>&1 &
listens 5000
here nuttcp -r -F -n 1m 10.9.0.2 || fail 'nuttcp, from Linux'
# A server that is bound to the address of a group.
here iperf -s -u -B 239.1.2.3%near -t 15 >said &
server=$!
await 'grep -q Joining said' || fail 'iperf has not begun'
for _ in {1..10}; do
	there iperf -c 239.1.2.3 -u -b 500K -t 1 >/dev/null
	grep -q 'connected with 10.9.0.2' said && break
done
wait $server
grep 'connected with 10.9.0.2' said || fail 'iperf hears nothing of a group'

# What serves.
cat >lighttpd.conf <<END
server.document-root = "$PWD"
server.port = 5020
server.bind = "10.9.0.1"
END
timeout 100 crtos run -- lighttpd -D -f lighttpd.conf &
answers 5020
there ab -q -k -n 200 -c 5 http://10.9.0.1:5020/lighttpd.conf >said || fail ab
grep -q 'Failed requests: *0$' said || { cat said; fail lighttpd; }
[ "$(there curl -s http://10.9.0.1:5020/file | md5sum)" = "$sum" ] || fail 'lighttpd, a file'
mkdir -p ~/.ssh
dropbearkey -t ed25519 -f host >/dev/null 2>&1
dropbearkey -t ed25519 -f client 2>/dev/null | grep '^ssh-' >~/.ssh/authorized_keys
chmod 700 ~ ~/.ssh && chmod 600 ~/.ssh/authorized_keys
timeout 100 crtos run -- dropbear -F -E -r host -p 10.9.0.1:2222 2>/dev/null &
answers 2222
[ "$(there dbclient -y -i client -p 2222 root@10.9.0.1 md5sum <file 2>/dev/null)" = "$sum" ] ||
	fail dropbear
cat >rsyncd.conf <<END
use chroot = no
uid = root
gid = root
[files]
path = $PWD
read only = no
END
timeout 100 crtos run -- rsync --daemon --no-detach --address=10.9.0.1 --port=8730 \
	--config=rsyncd.conf &
answers 8730
there rsync rsync://10.9.0.1:8730/files/file copy || fail 'rsync, from here'
there rsync copy rsync://10.9.0.1:8730/files/back || fail 'rsync, to here'
[ "$(md5sum <back)" = "$sum" ] || fail 'rsync, a file'

# What asks stations for an echo.
here ping -q -n -c 5 -i 0.2 10.9.0.2 | grep -q '5 packets transmitted, 5 received' || fail ping
here ping -q -n -c 2 -i 0.2 -s 20000 -I near 10.9.0.2 | grep -q ' 2 received' || fail 'ping, long'
here ping -n -c 1 -M 'do' -s 1473 10.9.0.2 2>&1 | grep -q 'message too long' || fail 'ping, too long'
here ping -n -c 1 10.9.0.77 | grep -q '^From 10.9.0.1 .*Destination Host Unreachable' ||
	fail 'ping, nobody'
there ping -q -n -c 2 -i 0.2 -s 20000 10.9.0.1 | grep -q ' 2 received' || fail 'ping, to here'
here fping -q -c 3 -p 100 10.9.0.2 2>&1 | grep -q '3/3/0%' || fail fping
here traceroute -n -I -q 1 -m 3 10.9.0.2 | grep -q '^ 1  10.9.0.2' || fail traceroute
here mtr -n -r -c 3 -i 0.3 10.9.0.2 >said
grep -q '1\.|-- 10\.9\.0\.2  *0\.0%' said || { cat said; fail mtr; }

# What sends frames as they are. Linux has no route for the interface, so that scapy has to be told
# who sends.
there nc -lk 5100 &
listens 5100
here nmap -n -e near -Pn --send-eth -sS -p 5100-5101 10.9.0.2 >said
[ "$(grep -c -e '^5100/tcp open' -e '^5101/tcp closed' said)" = 2 ] || { cat said; fail nmap; }
here arp-scan -q -x -I near 10.9.0.0/29 | grep -q '^10\.9\.0\.2' || fail arp-scan
cat >frames.py <<'END'
from scapy.all import *
conf.verb = 0
own = get_if_hwaddr("near")
asked = Ether(src=own, dst="ff:ff:ff:ff:ff:ff") / ARP(hwsrc=own, psrc="10.9.0.1", pdst="10.9.0.2")
station = srp1(asked, iface="near", timeout=10)[ARP].hwsrc
packet = Ether(src=own, dst=station) / IP(src="10.9.0.1", dst="10.9.0.2")
print(srp1(packet / ICMP() / b"echo", iface="near", timeout=10)[ICMP].type)
answer = srp1(packet / UDP(sport=4444, dport=4445) / b"none", iface="near", timeout=10)[ICMP]
print(answer.type, answer.code)
END
[ "$(here python3 frames.py 2>/dev/null | tr '\n' ' ')" = '0 3 3 ' ] || fail scapy
crtos down --force || fail down
exit $failed
