#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Programs of Debian, as they are packaged, share memory, files and sockets between the realms: the
# server in the realm and its clients in Linux, and the reverse; or both at once on one database.
# kernels: 6.12
# more kernels: 6.1
# tier: full
# realm: no
# mem: 4G
# packages: redis-server,redis-tools,postgresql,postgresql-contrib,sqlite3,lmdb-utils,python3
# packages: jackd2
# timeout: 2400
# uses: realms
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
mkdir -p /tmp/shared && mount -t tmpfs none /tmp/shared && cd /tmp/shared || exit 1
chmod 777 .
ip link set lo up
modprobe crtos
dmesg --clear
crtos up --cpus 2,3 --memory 1G || exit 1

# each_way FUNCTION ARGUMENTS...: calls it with where one half runs and where the other one does.
each_way() {
	local name=$1
	shift
	"$name" realm linux "$@"
	"$name" linux realm "$@"
}

redis() {
	local server=$1 client=$2 pid
	cat >redis.conf <<-X
		port 7000
		bind 127.0.0.1
		save ""
		dir /tmp/shared
		appendonly yes
	X
	rm -rf appendonlydir
	ask() { (on $client redis-cli -p 7000 "$@"); }
	(on $server redis-server redis.conf) >redis.log 2>&1 &
	pid=$!
	await 'ask ping 2>/dev/null | grep -q PONG' 300 || fail "redis in $server: $(tail -n 3 redis.log)"
	ask set a b >/dev/null
	[ "$(ask get a)" = b ] || fail "redis in $server"
	ask bgsave >/dev/null
	await 'ask info persistence | grep -q rdb_bgsave_in_progress:0' 300
	ask info persistence | grep -q 'rdb_last_bgsave_status:ok' || fail "redis in $server does not save"
	(on $client redis-benchmark -p 7000 -n 500 -c 5 -t set,get,lpush -q) >told 2>&1 ||
		fail "$client: $(cat told)"
	[ "$(ask llen mylist)" = 500 ] || fail "redis in $server has $(ask llen mylist) of 500"
	ask shutdown nosave
	wait $pid || fail "redis in $server: status $?"
	echo "redis in $server, clients in $client"
}

postgres() {
	local server=$1 client=$2 pid data=/tmp/shared/data before='' programs
	programs=$(echo /usr/lib/postgresql/*/bin)
	rm -rf data && mkdir data && chown postgres data
	ask() { (on $client psql -h $data -U postgres -Atc "$1"); }
	bench() {
		(on $client "$programs/pgbench" -h $data -U postgres "$@" postgres) >told 2>&1 ||
			fail "pgbench in $client: $(cat told)"
	}
	su postgres -c "timeout 300 $programs/initdb -D $data --no-sync" >told 2>&1 ||
		fail "initdb: $(cat told)"
	[ "$server" = linux ] || before='crtos run --'
	su postgres -c "exec timeout 600 $before $programs/postgres -D $data -k $data" \
		>postgres.log 2>&1 &
	pid=$!
	await 'ask "select 1" >/dev/null 2>&1' 600 ||
		fail "postgres in $server: $(tail -n 3 postgres.log)"
	ask 'create table t as select generate_series(1, 10000) a' >/dev/null
	[ "$(ask 'select sum(a) from t')" = 50005000 ] || fail "postgres in $server: a wrong sum"
	bench -q -i -s 1
	bench -c 4 -t 20
	[ "$(ask 'select count(*) from pgbench_history')" = 80 ] ||
		fail "postgres in $server has lost something"
	kill -INT "$(head -n 1 data/postmaster.pid)"
	wait $pid || fail "postgres in $server: status $?"
	echo "postgres in $server, clients in $client"
}

# sqlite FOLDER: both write to one database at once, which has a log that is mapped shared.
sqlite() {
	local database=$1/both.db first status
	cat >write.py <<-'PY'
		import sqlite3, sys
		database = sqlite3.connect(sys.argv[1], timeout=100)
		database.execute("pragma mmap_size=1000000")
		for number in range(100):
		    with database:
		        database.execute("insert into t values(?, ?)", (sys.argv[2], number))
	PY
	rm -f "$database"*
	sqlite3 "$database" 'pragma journal_mode=wal; create table t(who, number);' >/dev/null
	(on realm python3 write.py "$database" realm) &
	first=$!
	(on linux python3 write.py "$database" linux)
	status=$?
	wait $first || fail "sqlite in the realm: status $?"
	[ $status = 0 ] || fail "sqlite in Linux: status $status"
	for _ in {1..10}; do
		(on realm sqlite3 -cmd '.timeout 20000' "$database" "insert into t values('realm', 0)") ||
			fail 'sqlite3 in the realm'
	done
	[ "$(sqlite3 "$database" 'select count(*) from t; pragma integrity_check')" = $'210\nok' ] ||
		fail "sqlite in $1: $(sqlite3 "$database" 'select who, count(*) from t group by who')"
	echo "sqlite of both in $1"
}

lmdb() {
	local first
	rm -rf lmdb && mkdir lmdb
	lines() { seq "$1" "$2" | sed 's/.*/k&\nv&/'; }
	lines 1 500 | mdb_load -T lmdb || fail 'mdb_load'
	[ "$( (on realm mdb_dump -p lmdb) | md5sum)" = "$(mdb_dump -p lmdb | md5sum)" ] ||
		fail 'lmdb is another one in the realm'
	lines 501 1000 >more.realm
	lines 1001 1500 >more.linux
	(on realm mdb_load -T lmdb <more.realm) &
	first=$!
	(on linux mdb_load -T lmdb <more.linux) || fail "mdb_load in Linux: status $?"
	wait $first || fail "mdb_load in the realm: status $?"
	mdb_stat lmdb | grep -q 'Entries: 1500' || fail "lmdb: $(mdb_stat lmdb | tail -n 1)"
	(on realm mdb_stat lmdb) | grep -q 'Entries: 1500' || fail 'lmdb in the realm'
	echo 'lmdb of both'
}

multiprocessing() {
	local first
	cat >memory.py <<-'PY'
		import sys, time
		from multiprocessing import shared_memory
		def until(done):
		    while not done():
		        time.sleep(0.01)
		if sys.argv[1] == "make":
		    memory = shared_memory.SharedMemory("crtos-test", create=True, size=1000000)
		    until(lambda: memory.buf[0] == 7)
		    assert bytes(memory.buf[100:110]) == b"0123456789"
		    memory.buf[1] = 9
		    until(lambda: memory.buf[2] == 3)
		    memory.close()
		    memory.unlink()
		else:
		    for _ in range(300):
		        try:
		            memory = shared_memory.SharedMemory("crtos-test")
		            break
		        except (FileNotFoundError, ValueError):
		            time.sleep(0.1)
		    memory.buf[100:110] = b"0123456789"
		    memory.buf[0] = 7
		    until(lambda: memory.buf[1] == 9)
		    memory.buf[2] = 3
		    memory.close()
	PY
	(on $1 python3 memory.py make) &
	first=$!
	(on $2 python3 memory.py use) 2>told || fail "multiprocessing in $2: $(cat told)"
	wait $first || fail "multiprocessing in $1: status $?"
	echo "multiprocessing: memory of $1 in $2"
}

# The server wakes its clients by futexes in memory that they share.
jack() {
	local server=$1 client=$2 pid
	export JACK_NO_AUDIO_RESERVATION=1
	(on $server jackd -r -d dummy -r 48000 -p 1024) >jack.log 2>&1 &
	pid=$!
	await '(on $client jack_lsp) 2>/dev/null | grep -q system:playback_1' 300 ||
		fail "jack in $server: $(tail -n 5 jack.log)"
	rm -f record.wav
	(on $client timeout 60 jack_rec -f record.wav -d 1 -b 16 system:capture_1) >told 2>&1 ||
		fail "jack_rec in $client: $(cat told)"
	# A second, but for what comes before the first period.
	[ "$(stat -c %s record.wav 2>/dev/null || echo 0)" -gt 80000 ] ||
		fail "jack in $server: $(ls -l record.wav)"
	pkill -INT -x jackd
	wait $pid
	echo "jack in $server, clients in $client"
}

groupadd -f crtos
usermod -aG crtos postgres
chgrp crtos /dev/crtos
chmod 660 /dev/crtos
each_way redis
each_way postgres
sqlite /tmp/shared
sqlite /var/tmp
lmdb
each_way multiprocessing
each_way jack
crtos run -- busybox true || fail 'the realm does not go on'
crtos down || fail down
cd / && umount /tmp/shared || fail 'files stay in use'
complaints | grep . && fail dmesg
exit $failed
