#!/bin/bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# What runs programs of other languages does in the realm what it does under Linux: threads, signals
# and memory are used by each in its own way.
# kernels: 6.12
# tier: full
# realm: no
# mem: 6G
# packages: nodejs,openjdk-17-jdk-headless,ruby,php-cli,sbcl,guile-3.0,erlang-base,ocaml-interp
# packages: golang-go,tcl,gforth,swi-prolog-nox,octave,luajit,pypy3,mono-runtime,r-base-core,elixir
# uses: same
# timeout: 3000
set -u
cd "$(mktemp -d)" || exit 1
crtos up --cpus 2,3 --memory 2G || exit 1

same node 'node -e "console.log([1, 2, 3].map(n => n * n), process.argv.length)"'
same node-timers 'node -e "let n = 0; const t = setInterval(() => { if (++n === 5) { clearInterval(t); console.log(n) } }, 10)"'
same node-workers 'cat >w.js <<END
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
if (isMainThread) {
	let left = 3, sum = 0;
	for (let n = 0; n < 3; n++)
		new Worker(__filename, { workerData: n }).on("message", m => { sum += m; })
			.on("exit", () => { if (!--left) console.log(sum); });
} else {
	let s = 0;
	for (let i = 0; i < 100000; i++) s += i % 7 * workerData;
	parentPort.postMessage(s);
}
END
node w.js'
same node-http 'node -e "
const http = require(\"http\");
const server = http.createServer((q, a) => a.end(q.url)).listen(0, \"127.0.0.1\", () =>
	http.get({ port: server.address().port, path: \"/path\" }, a => a.on(\"data\", d => console.log(String(d))).on(\"end\", () => server.close())));"'
same node-child 'node -e "const { execFile, fork, spawnSync } = require(\"child_process\");
execFile(\"seq\", [\"3\"], (e, out) => console.log(e, out)); console.log(spawnSync(\"sh\", [\"-c\", \"exit 7\"]).status)"'
same node-crypto 'node -e "const c = require(\"crypto\"); c.pbkdf2(\"a\", \"b\", 1000, 16, \"sha256\", (e, k) => console.log(k.toString(\"hex\")));
require(\"fs\").writeFileSync(\"f\", \"text\"); require(\"fs\").promises.readFile(\"f\", \"utf8\").then(console.log);
console.log(require(\"zlib\").gzipSync(\"x\".repeat(1000)).length > 0, require(\"os\").platform())"'
same java 'cat >T.java <<END
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.stream.*;
public class T {
	public static void main(String[] a) throws Exception {
		LongStream numbers = IntStream.range(0, 100000).parallel().mapToLong(n -> n);
		System.out.println(numbers.map(n -> n * n).sum());
		ExecutorService pool = Executors.newFixedThreadPool(4);
		List<Future<Integer>> all = new ArrayList<>();
		for (int i = 0; i < 20; i++) { final int n = i; all.add(pool.submit(() -> n * n)); }
		int sum = 0;
		for (Future<Integer> f : all) sum += f.get();
		pool.shutdown();
		System.out.println(sum);
		Object lock = new Object();
		AtomicInteger turns = new AtomicInteger();
		Thread t = new Thread(() -> {
			synchronized (lock) { turns.incrementAndGet(); lock.notify(); }
		});
		synchronized (lock) { t.start(); lock.wait(10000); }
		t.join();
		System.out.println(turns);
		try { Object o = null; o.hashCode(); }
		catch (NullPointerException e) { System.out.println("null"); }
		try { deep(0); } catch (StackOverflowError e) { System.out.println("deep"); }
		byte[][] garbage = new byte[100][];
		for (int i = 0; i < 3000; i++) garbage[i % 100] = new byte[50000];
		System.gc();
		System.out.println(garbage[7].length);
		Process p = new ProcessBuilder("seq", "3").start();
		System.out.println(new String(p.getInputStream().readAllBytes()) + p.waitFor());
		ScheduledExecutorService s = Executors.newScheduledThreadPool(1);
		System.out.println(s.schedule(() -> "later", 20, TimeUnit.MILLISECONDS).get());
		s.shutdownNow();
	}
	static int deep(int n) { return deep(n + 1) + 1; }
}
END
java -Xmx256m T.java'
for collector in Serial Parallel G1 Z Shenandoah; do
	same java-$collector 'cat >G.java <<END
public class G {
	static class N { N next; byte[] b = new byte[1000]; }
	public static void main(String[] a) {
		N keep = null; long n = 0;
		for (int i = 0; i < 100000; i++) {
			N x = new N();
			if (i % 10 == 0) { x.next = keep; keep = x; }
			if (i % 20000 == 0) keep = null;
		}
		for (N x = keep; x != null; x = x.next) n++;
		System.out.println(n);
	}
}
END
java -Xmx256m -XX:+Use'$collector'GC G.java'
done
same ruby 'ruby -e "q = Queue.new; t = 4.times.map { Thread.new { s = 0; while (n = q.pop) != :end do s += n end; s } }; 1000.times { |n| q << n }; 4.times { q << :end }; puts t.sum(&:value)"'
same ruby-fork 'ruby -e "r, w = IO.pipe; pid = fork { w.puts 6 * 7 }; w.close; puts r.read; Process.wait pid; p \$?.exitstatus; p \`echo sub\`; trap(:USR1) { puts :caught }; Process.kill :USR1, \$\$; sleep 0.05"'
same ruby-timeout 'ruby -rtimeout -e "begin; Timeout.timeout(0.1) { sleep 5 }; rescue Timeout::Error; puts :timeout; end; puts Fiber.new { Fiber.yield 1; 2 }.resume; puts 50.times.map { |n| Thread.new { sleep 0.01; n } }.sum(&:value)"'
same php 'php -r "echo array_sum(range(1, 100)), PHP_EOL, json_encode([1, \"a\" => null]), PHP_EOL; echo preg_replace(\"/b+/\", \"x\", \"abbbc\"), PHP_EOL; usleep(1000); echo shell_exec(\"seq 3\"); var_dump(stream_get_contents(popen(\"echo x\", \"r\")));"'
same php-server 'echo "<?php echo 6 * 7;" >i.php; php -S 127.0.0.1:8096 >/dev/null 2>&1 & p=$!; for i in $(seq 300); do php -r "echo @file_get_contents(\"http://127.0.0.1:8096/i.php\");" | grep 42 && break; sleep 0.2; done; kill $p; wait $p; echo $?'
same sbcl 'sbcl --noinform --non-interactive --eval "(progn (print (loop for i below 100 sum (* i i))) (let ((l (loop repeat 200000 collect (make-array 10)))) (gc :full t) (print (length l))) (print (handler-case (car 1) (type-error () :error))) (let ((m (sb-thread:make-mutex)) (n 0)) (mapc (function sb-thread:join-thread) (loop repeat 4 collect (sb-thread:make-thread (lambda () (dotimes (i 1000) (sb-thread:with-mutex (m) (incf n))))))) (print n)) (print (handler-case (labels ((f (n) (+ 1 (f n)))) (f 1)) (sb-kernel::control-stack-exhausted () :deep))))"'
same guile 'GUILE_AUTO_COMPILE=0 guile -c "(use-modules (ice-9 threads) (ice-9 popen) (ice-9 rdelim)) (display (apply + (par-map (lambda (n) (* n n)) (iota 100)))) (newline) (let ((p (open-input-pipe \"echo pipe\"))) (display (read-line p)) (close-pipe p)) (gc) (newline)"'
same erlang 'erl -noshell -eval "S = self(), [spawn(fun() -> S ! N * N end) || N <- lists:seq(1, 1000)], io:format(\"~p~n\", [lists:sum([receive M -> M end || _ <- lists:seq(1, 1000)])]), timer:sleep(20), io:format(\"~s\", [os:cmd(\"seq 3\")]), {ok, L} = gen_tcp:listen(0, [binary, {active, false}]), {ok, P} = inet:port(L), spawn(fun() -> {ok, C} = gen_tcp:connect({127,0,0,1}, P, [binary]), gen_tcp:send(C, <<\"tcp\">>), gen_tcp:close(C) end), {ok, A} = gen_tcp:accept(L), io:format(\"~p~n\", [gen_tcp:recv(A, 3)]), halt(3)."'
same elixir 'elixir -e "1..50 |> Task.async_stream(fn n -> Process.sleep(1); n * n end) |> Enum.map(fn {:ok, n} -> n end) |> Enum.sum() |> IO.puts()"'
same ocaml 'cat >o.ml <<END
let () = Printf.printf "%d\n" (List.fold_left (+) 0 (List.init 1000 (fun n -> n * n)));
  let rec f n = if n = 0 then [] else String.make 100 (Char.chr (n mod 256)) :: f (n - 1) in
  Printf.printf "%d\n" (List.length (f 20000)); Gc.full_major ();
  (try ignore (List.hd []) with Failure m -> print_endline m); exit 3
END
ocaml o.ml'
same go 'cat >g.go <<END
package main
import ("fmt"; "net"; "os"; "os/exec"; "os/signal"; "runtime"; "sync"; "syscall"; "time")
func main() {
	var wait sync.WaitGroup
	var lock sync.Mutex
	sum := 0
	for n := 0; n < 1000; n++ {
		wait.Add(1)
		go func(n int) {
			defer wait.Done()
			runtime.Gosched(); lock.Lock(); sum += n; lock.Unlock()
		}(n)
	}
	wait.Wait()
	fmt.Println(sum)
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() { c, _ := l.Accept(); c.Write([]byte("tcp")); c.Close() }()
	c, _ := net.Dial("tcp", l.Addr().String())
	b := make([]byte, 3); c.Read(b); fmt.Println(string(b))
	s := make(chan os.Signal, 1); signal.Notify(s, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1); fmt.Println(<-s)
	out, err := exec.Command("seq", "3").Output(); fmt.Println(string(out), err)
	select { case <-time.After(20 * time.Millisecond): fmt.Println("later") }
	func() { defer func() { fmt.Println(recover() != nil) }(); var p *int; *p = 1 }()
	// What never gives way is preempted by a signal.
	go func() { for { } }()
	time.Sleep(50 * time.Millisecond); runtime.GC(); fmt.Println("preempted")
	x := make([][]byte, 0)
	for i := 0; i < 2000; i++ { x = append(x, make([]byte, 10000)); if i%100 == 0 { x = nil } }
	runtime.GC(); fmt.Println(len(x))
}
END
GOCACHE=$PWD/c GO111MODULE=off CGO_ENABLED=0 go build -o g g.go && ./g'
same tcl 'echo "set n 0; after 20 {incr n; set done 1}; vwait done; puts \$n; puts [exec seq 3]; puts [string toupper abc]; set f [open |cat r+]; puts \$f through; flush \$f; puts [gets \$f]; close \$f" | tclsh'
same gforth 'gforth -e ": square dup * ; 7 square . 10 0 do i . loop cr bye"'
same prolog 'swipl -g "numlist(1, 100, L), sum_list(L, S), writeln(S), concurrent_maplist([X, Y]>>(Y is X * X), [1, 2, 3], M), writeln(M), garbage_collect, catch(atom_length(_, _), error(E, _), (print(E), nl))" -t halt'
same octave 'octave-cli --no-init-file --eval "A = magic(4); disp(A * A); disp(sum(inv(A + eye(4))(:)) > 0); [s, o] = system(\"seq 3\"); disp(o)"'
same luajit 'luajit -e "local s = 0 for i = 1, 1e6 do s = s + i % 3 end print(s) local ffi = require(\"ffi\") ffi.cdef[[int getpid(void);]] print(ffi.C.getpid() > 0)"'
same pypy 'pypy3 -c "
import threading, subprocess, os
s = 0
for i in range(300000): s += i % 7
print(s)
t = [threading.Thread(target=lambda: None) for _ in range(20)]
[x.start() for x in t]; [x.join() for x in t]
print(subprocess.check_output([\"seq\", \"3\"])); p = os.fork()
if not p: os._exit(7)
print(os.waitpid(p, 0)[1])"'
same mono 'mono --version | head -1 | cut -d" " -f1-5'
same r 'R --no-save --slave -e "x <- 1:100; print(sum(x^2)); print(summary(lm(x ~ sqrt(x)))\$r.squared > 0.8); print(system(\"seq 3\", intern = TRUE)); print(parallel::mclapply(1:3, function(n) n * n, mc.cores = 2))"'

crtos down || failed=1
exit $failed
