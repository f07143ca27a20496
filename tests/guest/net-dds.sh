#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The middleware of ROS 2: Debian's Cyclone DDS finds and reaches others over an interface of the
# realm as over one of Linux, another machine's and the realm's own, and ends. Its sockets are bound
# to 0.0.0.0, which stands for the realm's interfaces by --realm-wildcard and for Linux's without.
# The same of a server that is bound to ::, and of children.
# kernels: 6.12
# realm: no
# devices: yes
# packages: cyclonedds-tools,netcat-openbsd,python3,curl
# uses: net peer
# tier: full
# timeout: 400
set -u
cd "$(mktemp -d)" || exit 1
failed=0
fail() { echo "FAILED $*"; failed=1; }
wire && peer || exit 1
# dds ADDRESS COMMAND...: runs it with that address of this machine's for DDS.
dds() {
	local interfaces="<Interfaces><NetworkInterface address=\"$1\"/></Interfaces>"
	shift
	CYCLONEDDS_URI="<CycloneDDS><Domain><General>$interfaces</General></Domain></CycloneDDS>" \
		timeout -k 3 60 "$@"
}
# answered WHAT SECONDS COMMAND...: the command is the start of a ddsperf whose questions somebody
# answers; it ends in time.
answered() {
	local what=$1 seconds=$2
	shift 2
	dds 10.9.0.1 "$@" ddsperf -D "$seconds" ping >said 2>&1 || fail "$what: status $?"
	grep -q 'size 12 mean .* cnt [1-9]' said || { cat said; fail "$what: no answer"; }
}
any=(crtos run --realm-wildcard --)

ip route add 224.0.0.0/4 dev near
dds 10.9.0.2 ip netns exec peer ddsperf pong >/dev/null 2>&1 &
answered 'under Linux' 5
ip route del 224.0.0.0/4 dev near
crtos up --cpus 3 --memory 384M --device near --ethernet 10.77.0.2/24 || exit 1
ip address add 10.77.0.1/24 dev crtos0 && ip link set crtos0 up || exit 1
answered 'in the realm' 6 "${any[@]}"
ip netns pids peer | xargs kill
wait
dds 10.9.0.1 "${any[@]}" ddsperf -D 12 pong >pong 2>&1 &
answered 'of the realm alone' 6 "${any[@]}"
wait $! || { cat pong; fail "its other end: status $?"; }

# A server at ::, which a shell executes, is there for both interfaces.
echo well >page
timeout 60 "${any[@]}" sh -c 'exec python3 -m http.server 8000' >/dev/null 2>&1 &
for way in 'there curl -s http://10.9.0.1:8000/page' 'curl -s http://10.77.0.2:8000/page'; do
	await "[ \"\$($way)\" = well ]" || fail "$way"
done
kill $!
curl -s http://127.0.0.1:8000/page && fail 'it is there for 127.0.0.1'

# What comes for a socket at 0.0.0.0: by the wire with the option, from Linux without.
cat >hear.py <<'END'
import socket, sys
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.settimeout(20)
own.bind(("0.0.0.0", int(sys.argv[1])))
print(*own.getsockname(), flush=True)
print(own.recv(100).decode(), flush=True)
END
# told WHAT COMMAND...: tells that by a command.
told() { echo -n "$1" | timeout 5 "${@:2}"; }
heard() { await '[ "$(wc -l <said)" = 2 ]' && tail -n 1 said; }
begins() { await '[ -s said ]'; }
timeout 60 "${any[@]}" python3 hear.py 5300 >said &
begins
told 'from Linux' nc -u -w 1 127.0.0.1 5300
told 'by the wire' ip netns exec peer nc -u -w 1 10.9.0.1 5300
[ "$(heard)" = 'by the wire' ] || { cat said; fail 'with --realm-wildcard'; }
[ "$(head -n 1 said)" = '0.0.0.0 5300' ] || { cat said; fail 'its name'; }
: >said
timeout 60 crtos run -- python3 hear.py 5300 >said &
begins
told 'by the wire' ip netns exec peer nc -u -w 1 10.9.0.1 5300
told 'from Linux' nc -u -w 1 127.0.0.1 5300
[ "$(heard)" = 'from Linux' ] || { cat said; fail 'without'; }
wait
crtos down || fail down
exit $failed
