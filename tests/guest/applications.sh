#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Debian's own applications, as they are packaged, do in the realm what they do under Linux.
# kernels: 6.1
# tier: full
# realm: no
# packages: bc,curl,fio,gawk,git,jq,lua5.4,make,memcached,netcat-openbsd,nginx-light,openssl
# packages: redis-server,rt-tests,sqlite3,stress-ng,sysbench,xz-utils,zstd
# uses: same
# timeout: 1200
set -u
cd "$(mktemp -d)" || exit 1
crtos up --cpus 2,3 --memory 512M || exit 1

same bash 'a=0; for i in {1..200}; do a=$((a + i)); done; echo $a; type -t cd; echo {a..e}; [[ abc =~ b(.) ]] && echo ${BASH_REMATCH[1]}'
same pipeline 'seq 1000 | grep 7 | sort -r | head -5 | tr 0-9 a-j | sed s/a/A/ | wc -c'
same command-substitution 'x=$(echo $(echo $(echo deep))); echo $x; diff <(seq 3) <(seq 4)'
same background 'sleep 0.2 & p=$!; wait $p; echo $?; (exit 3) & wait $!; echo $?'
same here-document 'cat <<END | tr a-z A-Z
hello
END'
same trap 'trap "echo term" TERM; kill -TERM $$; echo after; trap "echo bye" EXIT'
same coreutils 'mkdir -p a/b && touch a/b/c && ls -R a && cp -r a d && find d -type f | sort && stat -c %s a/b/c && du -a d | wc -l && rm -r a d && ls'
same dd 'dd if=/dev/zero bs=4096 count=64 2>/dev/null | md5sum; dd if=/dev/zero of=/dev/null bs=1M count=8 2>&1 | tail -1 | cut -d, -f1'
same tar 'mkdir d; seq 5000 >d/f; tar czf t.tgz d && tar tzf t.tgz && tar xzf t.tgz -O d/f | md5sum'
same xz 'seq 20000 | xz -T1 | xz -d | md5sum'
same xz-threads 'seq 50000 | xz -T2 | xz -d | md5sum'
same zstd 'seq 50000 | zstd -q -T2 | zstd -d | md5sum'
same gzip 'seq 20000 | gzip | gunzip | md5sum'
same sort-threads 'seq 100000 | sort -R --random-source=/dev/zero --parallel=2 | sort -n --parallel=2 | md5sum'
same awk 'seq 1000 | gawk "{ s += \$1 } END { print s, sin(1) }"'
same bc 'echo "scale=50; 4*a(1)" | bc -l'
same jq 'echo "{\"a\":[1,2,{\"b\":null}]}" | jq -c ".a[2].b, (.a|length)"'
same perl 'perl -e "my %h; \$h{\$_ % 7}++ for 1..1000; print join(q(,), map { qq(\$_=\$h{\$_}) } sort keys %h), qq(\n); print sprintf(q(%.3f), atan2(1,1)), qq(\n)"'
same perl-fork 'perl -e "my \$p = fork; if (!\$p) { exit 7 } waitpid \$p, 0; print \$? >> 8, qq(\n); print \`echo sub\`; system q(true); print \$?, qq(\n)"'
same python 'python3 -c "import math, json, re, hashlib; print(json.dumps({\"pi\": math.pi}), hashlib.sha256(b\"x\").hexdigest()[:8])"'
same python-threads 'python3 -c "
import threading, queue
q = queue.Queue(); out = queue.Queue()
def work():
    while (n := q.get()) is not None: out.put(n * n)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [q.put(n) for n in range(500)]
[q.put(None) for _ in threads]; [t.join() for t in threads]
print(sum(out.get() for _ in range(500)))"'
same python-subprocess 'python3 -c "
import subprocess, sys
print(subprocess.run([sys.executable, \"-c\", \"print(6 * 7)\"], capture_output=True, text=True).stdout)
print(subprocess.check_output(\"seq 10 | wc -l\", shell=True))
try: subprocess.run([\"/nonexistent\"])
except FileNotFoundError as e: print(e)"'
same python-multiprocessing 'python3 -c "
import multiprocessing as mp
def f(n): return n ** 3
if __name__ == \"__main__\":
    with mp.get_context(\"fork\").Pool(3) as p: print(p.map(f, range(10)))"'
same python-forkserver 'cat >f.py <<END
import concurrent.futures
import multiprocessing as mp
from multiprocessing import shared_memory
def cube(n): return n ** 3
def fill(name, queue, event):
    memory = shared_memory.SharedMemory(name); memory.buf[0] = 42; memory.close()
    event.wait(); queue.put("filled")
def count(shared, lock, end):
    for _ in range(20):
        with lock: shared["n"] += 1
    end.send(mp.current_process().name); end.close()
if __name__ == "__main__":
    server = mp.get_context("forkserver")
    with server.Pool(3) as pool: print(pool.map(cube, range(10)))
    memory = shared_memory.SharedMemory(create=True, size=4096)
    queue, event = server.Queue(), server.Event()
    process = server.Process(target=fill, args=(memory.name, queue, event))
    process.start(); event.set(); print(queue.get()); process.join()
    print(memory.buf[0], process.exitcode); memory.close(); memory.unlink()
    with server.Manager() as manager:
        shared, lock = manager.dict(n=0), manager.Lock(); here, there = server.Pipe(duplex=False)
        all = [server.Process(target=count, args=(shared, lock, there), name=n) for n in "abc"]
        [process.start() for process in all]; there.close(); print(sorted(here.recv() for _ in all))
        [process.join() for process in all]; print(shared["n"])
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=server) as pool:
        print(list(pool.map(cube, range(5))))
END
python3 f.py'
same python-asyncio 'python3 -c "
import asyncio
async def tick(n): await asyncio.sleep(0.01 * n); return n
async def main():
    print(await asyncio.gather(*(tick(n) for n in range(5))))
    p = await asyncio.create_subprocess_exec(\"echo\", \"child\", stdout=asyncio.subprocess.PIPE); print((await p.communicate())[0])
asyncio.run(main())"'
same python-event-loop 'python3 -c "
import asyncio, os, socket
async def main():
    loop = asyncio.get_running_loop()
    a, b = socket.socketpair(); a.setblocking(False); b.setblocking(False)
    got = asyncio.create_task(loop.sock_recv(b, 10)); await loop.sock_sendall(a, b\"hello\"); print(await got)
    later = loop.create_future(); start = loop.time(); loop.call_later(0.05, later.set_result, 7)
    print(await later, loop.time() - start >= 0.05)
    r, w = os.pipe(); read = loop.create_future()
    loop.add_reader(r, lambda: read.done() or read.set_result(os.read(r, 10)))
    loop.call_later(0.01, os.write, w, b\"pipe\"); print(await read); loop.remove_reader(r)
    p = await asyncio.create_subprocess_exec(\"cat\", stdin=-1, stdout=-1); print(await p.communicate(b\"through\"), p.returncode)
    print(await loop.run_in_executor(None, sum, range(1000)))
    async def serve(reader, writer):
        writer.write(await reader.readline()); await writer.drain(); writer.close()
    server = await asyncio.start_server(serve, \"127.0.0.1\", 0); port = server.sockets[0].getsockname()[1]
    async def ask(n):
        r, w = await asyncio.open_connection(\"127.0.0.1\", port); w.write(b\"%d\\n\" % n); line = await r.readline(); w.close(); return int(line)
    print(sum(await asyncio.gather(*(ask(n) for n in range(20))))); server.close()
asyncio.run(main())"'
same python-signals 'python3 -c "
import signal, os, time
got = []
signal.signal(signal.SIGALRM, lambda s, f: got.append(s))
signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
while len(got) < 3: signal.pause()
print(len(got)); signal.setitimer(signal.ITIMER_REAL, 0)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); os.kill(os.getpid(), signal.SIGUSR1)
print(signal.sigwait([signal.SIGUSR1]))"'
same python-shared-memory 'python3 -c "
from multiprocessing import shared_memory, Process
def f(name):
    m = shared_memory.SharedMemory(name); m.buf[0] = 42; m.close()
m = shared_memory.SharedMemory(create=True, size=4096)
p = Process(target=f, args=(m.name,)); p.start(); p.join(); print(m.buf[0]); m.close(); m.unlink()"'
same lua 'lua5.4 -e "local t = {} for i = 1, 100 do t[i] = i * i end print(#t, t[10]) print(io.popen([[echo popen]]):read())"'
same sqlite 'sqlite3 db "create table t(a integer primary key, b text); insert into t(b) values (\"x\"), (\"y\"); begin; update t set b = b || a; commit; select * from t; pragma integrity_check"'
same sqlite-wal 'sqlite3 db "pragma journal_mode=wal; create table t(a); insert into t values (1); select count(*) from t"'
same redis 'redis-server --port 0 --unixsocket $PWD/s --save "" --daemonize no >/dev/null & for i in $(seq 600); do redis-cli -s s ping 2>/dev/null | grep -q PONG && break; sleep 0.1; done; redis-cli -s s set k v; redis-cli -s s get k; for i in 1 2 3; do redis-cli -s s incr n; done; redis-cli -s s shutdown nosave; wait; echo $?'
same redis-benchmark 'redis-server --port 0 --unixsocket $PWD/s --save "" --daemonize no >/dev/null & for i in $(seq 600); do redis-cli -s s ping 2>/dev/null | grep -q PONG && break; sleep 0.1; done; redis-benchmark -s s -n 200 -c 5 -q -t set,get --csv | cut -d, -f1; redis-cli -s s shutdown nosave; wait; echo $?'
same memcached 'memcached -u root -s $PWD/m -t 2 & p=$!; for i in $(seq 600); do [ -S m ] && break; sleep 0.1; done; printf "set k 0 0 5\r\nhello\r\nget k\r\nquit\r\n" | nc -U m; kill $p; wait $p; echo $?'
same sysbench 'sysbench cpu --threads=2 --events=200 --time=0 --cpu-max-prime=200 run | grep -E "total number of events|threads:"'
same sysbench-mutex 'sysbench mutex --threads=4 --mutex-num=16 --mutex-locks=500 run | grep -E "total number of events"'
same stress-ng 'stress-ng --cpu 1 --cpu-ops 5 --pipe 1 --pipe-ops 2000 --futex 1 --futex-ops 500 --timeout 30 --no-rand-seed 2>&1 | grep -cE "fail|error"'
same stress-ng-posix 'stress-ng --timer 1 --timer-ops 50 --sem 1 --sem-ops 500 --pthread 1 --pthread-ops 50 --sigq 1 --sigq-ops 100 --timerfd 1 --timerfd-ops 50 --eventfd 1 --eventfd-ops 200 --timeout 30 2>&1 | grep -cE "fail|error"'
same fio 'fio --name=x --size=256k --rw=randrw --bs=4k --ioengine=psync --verify=crc32c --minimal 2>&1 | cut -d\; -f3,5'
same fio-libaio 'for how in "" --userspace_reap --thread; do fio --name=x --size=256k --rw=randrw --bs=4k --ioengine=libaio --iodepth=8 $how --verify=crc32c --minimal 2>&1 | cut -d\; -f3,5; done'
same timeout 'timeout 0.2 sleep 5; echo $?; timeout -s KILL 0.2 sleep 5; echo $?'
same xargs 'seq 20 | xargs -P 3 -n 5 echo | sort'
same su-environment 'env -i A=1 env; nice -n 5 nice; id -u; umask; ulimit -n'
same flock 'flock l -c "echo locked"; mkfifo p; (echo through >p &) ; cat p'
same script-pipeline 'printf "#!/bin/sh\nwhile read l; do echo \"<\$l>\"; done\n" >w; chmod +x w; seq 5 | ./w | ./w | sort -r'
same env-script 'printf "#!/usr/bin/env python3\nimport sys\nprint(sys.argv, sys.stdin.read())\n" >p; chmod +x p; echo in | ./p a b'
same find-xargs 'mkdir d; for i in $(seq 30); do echo $i >d/$i; done; find d -type f -print0 | xargs -0 cat | sort -n | tail -3; find d -name "1*" -exec basename {} \; | sort | head -3'
same coproc 'coproc cat; echo hi >&${COPROC[1]}; read x <&${COPROC[0]}; echo $x; kill $COPROC_PID'
same named-pipe 'mkfifo f; cat f & echo x >f; wait'
same tar-xz 'mkdir d; seq 9000 >d/f; tar cJf t.txz d && tar tJf t.txz && tar xJOf t.txz | md5sum; tar c d | gzip | tar tz'
same git 'export HOME=$PWD GIT_AUTHOR_DATE=2000-01-01T00:00:00Z GIT_COMMITTER_DATE=2000-01-01T00:00:00Z; git init -q -b main r; cd r; git config user.email a@b; git config user.name n; echo a >f; git add f; git commit -qm one; echo b >>f; git commit -qam two; git log --oneline; git diff HEAD~1 | cat; git gc -q; git fsck; git clone -q . ../c; ls ../c; git stash list; git grep -n b'
same make 'printf "all: a b c\n\tcat a b c >all\n%%: %%.in\n\tsleep 0.1; cp \$< \$@\n" >Makefile; for i in a b c; do echo $i >$i.in; done; make -j2 -s all; cat all'
same openssl 'openssl genrsa 1024 2>/dev/null | openssl rsa -noout -check; echo x | openssl dgst -sha256; openssl enc -aes-128-cbc -pbkdf2 -k p <<<secret | openssl enc -d -aes-128-cbc -pbkdf2 -k p'
same python-http 'echo body >f; python3 -u -m http.server 8098 --bind 127.0.0.1 >/dev/null 2>&1 & p=$!; for i in $(seq 600); do curl -s http://127.0.0.1:8098/f && break; sleep 0.2; done; kill $p; wait $p; echo $?'
same python-socketserver 'python3 -c "
import socketserver, threading, socket
class H(socketserver.StreamRequestHandler):
    def handle(self): self.wfile.write(self.rfile.readline().upper())
s = socketserver.ThreadingTCPServer((\"127.0.0.1\", 0), H); threading.Thread(target=s.serve_forever, daemon=True).start()
for i in range(10):
    c = socket.create_connection(s.server_address); c.sendall(b\"hello%d\\n\" % i); print(c.makefile().read()); c.close()
s.shutdown()"'
same python-concurrent 'python3 -c "
import concurrent.futures as f
if __name__ == \"__main__\":
    with f.ProcessPoolExecutor(2) as e: print(list(e.map(abs, range(-5, 5))))
    with f.ThreadPoolExecutor(8) as e: print(sum(e.map(len, [\"x\" * n for n in range(50)])))"'
same python-mmap 'python3 -c "
import mmap, os, select, fcntl, pty, time, resource, ctypes
f = open(\"f\", \"w+b\"); f.truncate(8192); m = mmap.mmap(f.fileno(), 8192); m[0:5] = b\"hello\"; m.flush(); print(open(\"f\", \"rb\").read(5))
print(os.popen(\"echo popen\").read()); r, w = os.pipe(); os.write(w, b\"x\"); print(select.select([r], [], [], 1)[0] == [r])
fcntl.lockf(f, fcntl.LOCK_EX); print(os.sched_getaffinity(0) != set())
print(ctypes.CDLL(None).getpid() == os.getpid())
print(pty.spawn([\"echo\", \"pty\"]))"'
same perl-ipc 'perl -MIPC::Open3 -e "my \$p = open3(my \$i, my \$o, undef, q(tr a-z A-Z)); print \$i qq(abc\n); close \$i; print <\$o>; waitpid \$p, 0; print \$?, qq(\n)"; perl -MSocket -e "socketpair(A, B, AF_UNIX, SOCK_STREAM, PF_UNSPEC); syswrite A, q(x); sysread B, my \$b, 1; print \$b, qq(\n); \$SIG{ALRM} = sub { print qq(alarm\n) }; alarm 1; sleep 3; print qq(end\n)"'
same nginx 'mkdir -p t/logs; echo page >t/index.html; cat >t/c <<END
daemon off; pid t/p; error_log stderr; worker_processes 2; events { worker_connections 64; }
http {
	access_log off; client_body_temp_path t/1; proxy_temp_path t/2; fastcgi_temp_path t/3;
	uwsgi_temp_path t/4; scgi_temp_path t/5; server { listen 127.0.0.1:8097; root $PWD/t; }
}
END
chmod 755 . t; chmod 711 .. ; nginx -p $PWD -c t/c & p=$!; for i in $(seq 600); do curl -s http://127.0.0.1:8097/ && break; sleep 0.2; done; kill $p; wait $p; echo $?'
same process-substitution 'paste <(seq 3) <(seq 4 6); diff <(seq 3) <(seq 4); echo hello | cat - <(echo b)'
same chrt 'chrt -f 10 chrt -p 0 2>&1 | head -1 | grep -c SCHED; chrt -f 20 bash -c "chrt -p \$\$" | sed "s/[0-9]*.s / /"'

crtos down || failed=1
exit $failed
