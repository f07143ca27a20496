#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's programs that use UDP and TCP do over an interface of the realm what they do over one of
# Linux: socat, nc, traceroute, tracepath, iperf3, Python, curl, Java. Each is a client in the
# realm, and those that serve are servers there.
# kernels: 6.12
# realm: no
# devices: yes
# packages: socat,iperf3,curl,netcat-openbsd,traceroute,iputils-tracepath,python3-minimal
# packages: openjdk-17-jdk-headless
# uses: net peer
# timeout: 900
# tier: full
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
wire && peer || exit 1
crtos up --cpus 3 --memory 512M --device near || exit 1
here() { timeout 60 crtos run -- "$@"; }
head -c 300000 /dev/urandom >file
sum=$(md5sum <file)

# UDP.
there socat -T 20 UDP4-LISTEN:5000,fork PIPE &
await 'over_there ss -Hlun | grep -q :5000'
[ "$(echo hello | here socat -t 5 - UDP4:10.9.0.2:5000)" = hello ] || fail 'socat, UDP, to Linux'
here socat -u UDP4-RECV:5001,bind=10.9.0.1 OPEN:got,creat,trunc &
for _ in {1..50}; do
	echo packet | there socat - UDP4-SENDTO:10.9.0.1:5001
	[ ! -s got ] || break
	sleep 0.2
done
grep -q packet got || fail 'socat, UDP, from Linux'

# What has not arrived, and what is too long, is told.
here traceroute -n -q 1 10.9.0.2 >route
here tracepath -n 10.9.0.2 >path
[ "$(sed 1d route | cut -c 1-13)" = ' 1  10.9.0.2 ' ] || fail "traceroute: $(cat route)"
grep -q '1: *10.9.0.2 .*reached' path && grep -q 'Resume: pmtu 1500 hops 1 back 1' path ||
	fail "tracepath: $(cat path)"

# TCP: the realm connects.
there socat -u TCP4-LISTEN:5002,reuseaddr OPEN:received,creat,trunc &
listens 5002
here nc -N 10.9.0.2 5002 <file || fail 'nc'
await '[ "$(md5sum <received)" = "$sum" ]' 100 || fail 'nc has sent something else'
over_there python3 -c 'import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=5003)' \
	>/dev/null 2>&1 &
server=$!
listens 5003
[ "$(here curl -s http://10.9.0.2:5003/file | md5sum)" = "$sum" ] || fail 'curl'
kill $server

# TCP: Linux connects.
timeout 100 crtos run -- python3 -c \
	'import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=5004, bind="10.9.0.1")' \
	>/dev/null 2>&1 &
for _ in {1..100}; do
	there curl -s http://10.9.0.1:5004/file -o fetched && break
	sleep 0.2
done
[ "$(md5sum <fetched)" = "$sum" ] || fail 'http.server'
here nc -l 10.9.0.1 5005 >received </dev/null &
for _ in {1..100}; do
	there nc -N 10.9.0.1 5005 <file && break
	sleep 0.2
done
await '[ "$(md5sum <received)" = "$sum" ]' 100 || fail 'nc -l has received something else'

# Java has sockets of IPv6 at addresses of IPv4, and is told of what comes by channels as well.
cat >Net.java <<'END'
import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
public class Net {
	static final String NEAR = "10.9.0.1", FAR = "10.9.0.2";
	public static void main(String[] files) throws Exception {
		try (var server = new ServerSocket(5006, 5, InetAddress.getByName(NEAR))) {
			System.out.println("listens at " + server.getLocalSocketAddress());
			try (var from = server.accept(); var to = new FileOutputStream(files[0])) {
				System.out.println("from " + from.getInetAddress());
				from.getInputStream().transferTo(to);
			}
		}
		try (var to = new Socket(FAR, 5007); var from = new FileInputStream(files[1])) {
			to.setTrafficClass(8);
			from.transferTo(to.getOutputStream());
			System.out.println("to " + to.getRemoteSocketAddress());
		}
		var selector = Selector.open();
		try (var channel = DatagramChannel.open()) {
			channel.bind(new InetSocketAddress(NEAR, 5008)).configureBlocking(false);
			channel.register(selector, SelectionKey.OP_READ);
			var hello = ByteBuffer.wrap("hello".getBytes());
			channel.send(hello, new InetSocketAddress(FAR, 5009));
			System.out.println(selector.select(30000) + " ready");
			var buffer = ByteBuffer.allocate(100);
			var from = channel.receive(buffer);
			System.out.println(buffer.position() + " bytes from " + from);
		}
	}
}
END
javac Net.java
over_there timeout 400 socat -u TCP4-LISTEN:5007,reuseaddr OPEN:received,creat,trunc &
over_there timeout 400 socat -T 20 UDP4-LISTEN:5009,fork PIPE &
listens 5007
await 'over_there ss -Hlun | grep -q :5009'
timeout 300 crtos run -- java -Xmx64m -Xint Net fetched file >said 2>&1 &
java=$!
await 'grep -q listens said' || fail 'Java does not listen'
there nc -N 10.9.0.1 5006 <file
wait $java || fail "Java: status $?"
diff said - <<'END' || fail 'Java'
listens at /10.9.0.1:5006
from /10.9.0.2
to /10.9.0.2:5007
1 ready
5 bytes from /10.9.0.2:5009
END
await '[ "$(md5sum <received)" = "$sum" ]' 100 || fail 'Java has sent something else'
[ "$(md5sum <fetched)" = "$sum" ] || fail 'Java has received something else'

# Both, as fast as they can.
there iperf3 -4 -s -1 >/dev/null &
listens 5201
here iperf3 -c 10.9.0.2 -n 2M | grep -e sender -e receiver || fail 'iperf3'
there iperf3 -4 -s -1 >/dev/null &
listens 5201
here iperf3 -c 10.9.0.2 -n 2M -R | grep -e sender -e receiver || fail 'iperf3 -R'
there iperf3 -4 -s -1 >/dev/null &
listens 5201
here iperf3 -c 10.9.0.2 -u -b 1M -t 2 | grep -e sender -e receiver || fail 'iperf3 -u'
timeout 60 crtos run -- iperf3 -s -1 -B 10.9.0.1 >/dev/null &
for _ in {1..50}; do
	there iperf3 -c 10.9.0.1 -n 1M >said && break
	sleep 0.5
done
grep -e sender -e receiver said || fail 'iperf3 -s'
crtos down --force || fail down
exit $failed
