#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's programs that keep what others read in shared memory, half of them in the realm and half
# in Linux, and the reverse: a web cache's counters and log, traces of a program, frames of a video,
# two databases that both change, segments of System V from Python, Perl and PHP.
# kernels: 6.12
# more kernels: 6.1
# tier: full
# realm: no
# mem: 4G
# packages: varnish,curl,lttng-tools,liblttng-ust-dev,babeltrace2,gstreamer1.0-tools
# packages: gstreamer1.0-plugins-base,gstreamer1.0-plugins-bad,python3-bsddb3,db-util
# packages: python3-tdb,python3-sysv-ipc,libipc-sharelite-perl,libcache-fastmmap-perl,php-cli
# timeout: 2400
# uses: realms
set -u
failed=0
fail() { echo "FAILED $*"; failed=1; }
mkdir -p /tmp/shared && mount -t tmpfs none /tmp/shared && cd /tmp/shared || exit 1
ip link set lo up
modprobe crtos
dmesg --clear
crtos up --cpus 2,3 --memory 1G || exit 1

# each_way FUNCTION: calls it with where one half runs and where the other one does.
each_way() {
	"$1" realm linux
	"$1" linux realm
}

# both COMMAND...: runs it twice at once, with 1 and 2 behind it.
both() {
	local first
	(on "$one" "$@" 1) >told.1 2>&1 &
	first=$!
	(on "$other" "$@" 2) >told.2 2>&1 || fail "$* 2 in $other: status $?: $(tail -n 3 told.2)"
	wait $first || fail "$* 1 in $one: status $?: $(tail -n 3 told.1)"
}

# The cache counts and logs in memory that its tools map.
varnish() {
	local server=$1 client=$2 pid folder=/tmp/shared/varnish times
	rm -rf $folder
	(on $server varnishd -F -n $folder -a 127.0.0.1:6081 -T 127.0.0.1:6082 -b none \
		-s malloc,20m -j none) >varnish.log 2>&1 &
	pid=$!
	await 'curl -s -o /dev/null 127.0.0.1:6081' 600 ||
		fail "varnishd in $server: $(tail -n 3 varnish.log)"
	for times in 1 2 3 4 5; do curl -s -o /dev/null "127.0.0.1:6081/page-$times"; done
	await '(on $client varnishstat -1 -n $folder -f MAIN.client_req) |
		grep -q "client_req *[5-9] "' 100 || fail "varnishstat in $client"
	(on $client varnishlog -d -n $folder -g request) >told 2>&1
	grep -q 'ReqURL */page-5' told || fail "varnishlog in $client: $(tail -n 3 told)"
	kill "$(cat $folder/_.pid)"
	wait $pid
	echo "varnishd in $server, its tools in $client"
}

# A program writes events into rings, which a session daemon empties.
trace() {
	local program=$1 daemon=$2 pid count
	cat >traced.c <<-'X'
		#include <lttng/tracef.h>
		#include <pthread.h>
		static void *go(void *none)
		{
			for (int i = 0; i < 1000; i++)
				tracef("number %d", i);
			return none;
		}
		int main(void)
		{
			pthread_t all[2];
			for (int i = 0; i < 2; i++)
				pthread_create(&all[i], 0, go, 0);
			go(0);
			for (int i = 0; i < 2; i++)
				pthread_join(all[i], 0);
			return 0;
		}
	X
	gcc -o traced traced.c -llttng-ust -ldl -pthread || { fail 'no traced program'; return; }
	mkdir -p home
	export HOME=/tmp/shared/home LTTNG_HOME=/tmp/shared/home LTTNG_UST_REGISTER_TIMEOUT=-1
	(on $daemon lttng-sessiond --no-kernel) >sessiond.log 2>&1 &
	pid=$!
	await 'lttng list -u >/dev/null 2>&1' 300 || fail "sessiond: $(tail -n 3 sessiond.log)"
	{
		lttng create session --output=/tmp/shared/traces
		lttng enable-event -u 'lttng_ust_tracef:*'
		lttng start
	} >told 2>&1 || fail "lttng: $(cat told)"
	(on $program ./traced) || fail "traced: status $?"
	{ lttng stop; lttng destroy; } >told 2>&1 || fail "lttng: $(cat told)"
	count=$(babeltrace2 traces | grep -c number)
	[ "$count" = 3000 ] || fail "of 3000 events $count come"
	kill $pid
	wait $pid
	rm -rf traces /dev/shm/lttng-ust-wait-*
	echo "lttng: events of $program, a daemon in $daemon"
}

# The frames lie in a segment of the one that sends.
video() {
	local server=$1 client=$2 pid format=video/x-raw,width=64,height=48,format=I420
	rm -f socket frames
	(on $server gst-launch-1.0 -q videotestsrc num-buffers=41 ! $format ! \
		shmsink socket-path=/tmp/shared/socket shm-size=200000 sync=false) >told 2>&1 &
	pid=$!
	await '[ -S socket ]' 900 || fail "shmsink in $server: $(tail -n 3 told)"
	(on $client gst-launch-1.0 -q shmsrc socket-path=/tmp/shared/socket num-buffers=40 \
		is-live=true ! $format,framerate=30/1 ! filesink location=/tmp/shared/frames) \
		>told 2>&1 || fail "shmsrc in $client: $(tail -n 3 told)"
	wait $pid
	[ "$(stat -c %s frames)" = $((40 * 64 * 48 * 3 / 2)) ] ||
		fail "shmsrc in $client: $(stat -c %s frames) bytes"
	echo "frames of $server in $client"
}

# Berkeley DB has its locks and pages in mapped files.
berkeley() {
	local one=$1 other=$2 found
	cat >berkeley.py <<-'PY'
		import sys
		from bsddb3 import db
		env = db.DBEnv()
		env.set_lk_detect(db.DB_LOCK_DEFAULT)
		env.open("env", db.DB_CREATE | db.DB_INIT_MPOOL | db.DB_INIT_LOCK | db.DB_INIT_LOG
		         | db.DB_INIT_TXN)
		table = db.DB(env)
		table.open("table", None, db.DB_BTREE, db.DB_CREATE | db.DB_AUTO_COMMIT)
		count = 0
		while count < 100:
		    txn = env.txn_begin()
		    try:
		        value = int(table.get(b"n", b"0", txn=txn, flags=db.DB_RMW))
		        table.put(b"n", b"%d" % (value + 1), txn=txn)
		        table.put(f"{sys.argv[1]} {count}".encode(), b"x" * 100, txn=txn)
		        txn.commit(db.DB_TXN_NOSYNC)
		        count += 1
		    except db.DBLockDeadlockError:
		        txn.abort()
		table.close()
		env.close()
	PY
	rm -rf env && mkdir env
	both python3 berkeley.py
	(on $one db_verify -h env table) >told 2>&1 || fail "db_verify in $one: $(cat told)"
	found=$( (on $other db_dump -p -h env table) | grep -A 1 '^ n$' | tail -n 1)
	[ "$found" = ' 200' ] || fail "Berkeley DB counts$found"
	echo "Berkeley DB of $one and $other"
}

# The database of Samba, by robust mutexes in its file.
samba() {
	local one=$1 other=$2
	cat >samba.py <<-'PY'
		import os, sys, tdb, time
		def meet(name):
		    open(f"{name}.{sys.argv[1]}", "w").close()
		    while not (os.path.exists(name + ".1") and os.path.exists(name + ".2")):
		        time.sleep(0.02)
		# TDB_CLEAR_IF_FIRST and TDB_MUTEX_LOCKING.
		table = tdb.Tdb("table.tdb", 100, 1 | 4096, os.O_RDWR | os.O_CREAT, 0o600)
		meet("begin")
		for number in range(150):
		    table.lock_all()
		    table.store(b"n", b"%d" % (int(table.get(b"n") or 0) + 1), tdb.REPLACE)
		    table.unlock_all()
		    table.store(f"{sys.argv[1]} {number}".encode(), b"y" * 50 * (number % 9))
		meet("end")
		print(table.get(b"n"), len(list(table)))
		meet("over")
		table.close()
	PY
	rm -f table.tdb begin.* end.* over.*
	both python3 samba.py
	grep -qx "b'300' 301" told.1 && cmp told.1 told.2 || fail "tdb: $(cat told.1 told.2)"
	echo "tdb of $one and $other"
}

# Segments, semaphores and queues of System V, and a mapped file under a lock.
languages() {
	local one=$1 other=$2
	cat >sysv.py <<-'PY'
		import sys, time, sysv_ipc as ipc
		def existing(kind, key):
		    for _ in range(3000):
		        try:
		            return kind(key)
		        except ipc.ExistentialError:
		            time.sleep(0.02)
		if sys.argv[1] == "1":
		    memory = ipc.SharedMemory(4712, ipc.IPC_CREX, size=8192)
		    memory.write(b"hello")
		    done = ipc.Semaphore(4713, ipc.IPC_CREX)
		    queue = ipc.MessageQueue(4714, ipc.IPC_CREX)
		    queue.send(b"go", type=3)
		    done.acquire()
		    assert memory.read(5) == b"other" and memory.number_attached == 2
		    queue.send(b"end")
		    done.acquire()
		    memory.detach()
		    for one in memory, done, queue:
		        one.remove()
		else:
		    queue = existing(ipc.MessageQueue, 4714)
		    assert queue.receive(type=3)[0] == b"go"
		    memory, done = existing(ipc.SharedMemory, 4712), existing(ipc.Semaphore, 4713)
		    assert memory.read(5) == b"hello"
		    memory.write(b"other")
		    done.release()
		    assert queue.receive()[0] == b"end"
		    done.release()
	PY
	both python3 sysv.py
	cat >count.pl <<-'PL'
		use IPC::ShareLite qw(:lock);
		use Cache::FastMmap;
		my $share = IPC::ShareLite->new(-key => 1971, -create => 'yes', -destroy => 'no',
			-size => 100) or die $!;
		my $cache = Cache::FastMmap->new(share_file => 'cache', init_file => 0,
			unlink_on_exit => 0, cache_size => '1m', raw_values => 1);
		if ($ARGV[0] eq 'show') { print $share->fetch, ' ', $cache->get('n'); exit }
		for (1..100) {
			$share->lock(LOCK_EX);
			$share->store(($share->fetch || 0) + 1);
			$share->unlock;
			$cache->get_and_set('n', sub { return ($_[1] || 0) + 1 });
		}
	PL
	rm -f cache
	perl -e 'use Cache::FastMmap; Cache::FastMmap->new(share_file => "cache", init_file => 1,
		unlink_on_exit => 0, cache_size => "1m", raw_values => 1)'
	both perl count.pl
	[ "$( (on $other perl count.pl show) )" = '200 200' ] ||
		fail "Perl counts $(perl count.pl show)"
	(on $one php -r '$memory = shmop_open(77, "c", 0644, 100); shmop_write($memory, "from php", 0);
		shm_put_var(shm_attach(78, 10000), 1, [1, "x"]); sem_acquire(sem_get(79));
		msg_send(msg_get_queue(80), 1, "m");') || fail "PHP in $one"
	(on $other php -r 'echo shmop_read(shmop_open(77, "a", 0, 0), 0, 8);
		echo shm_get_var(shm_attach(78), 1)[1]; sem_acquire(sem_get(79));
		msg_receive(msg_get_queue(80), 0, $type, 100, $message); echo $message;') >told
	[ "$(cat told)" = 'from phpxm' ] || fail "PHP in $other: $(cat told)"
	ipcrm -a
	echo "Python, Perl and PHP of $one and $other"
}

each_way varnish
each_way trace
each_way video
each_way berkeley
each_way samba
each_way languages
cd / && umount /tmp/shared || fail 'files stay in use'
ends
exit $failed
