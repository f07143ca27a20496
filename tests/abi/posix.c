// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/*
 * Functions of POSIX that the C library makes of several calls: mutexes with a ceiling, waits by a
 * clock, asynchronous transfers, attributes of threads and of programs, semaphores with names,
 * cancellation in whatever a thread waits in. Run as root.
 */
#define _GNU_SOURCE
#include <aio.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>

#include "check.h"
#include "children.h"

#define MS 1000000L

extern char **environ;

/* The time of a clock, so many milliseconds from now. */
static struct timespec in_ms(clockid_t clock, long ms)
{
	struct timespec time;

	clock_gettime(clock, &time);
	time.tv_nsec += ms * MS;
	time.tv_sec += time.tv_nsec / (1000 * MS);
	time.tv_nsec %= 1000 * MS;
	return time;
}

/* Milliseconds of CLOCK_MONOTONIC. */
static long now(void)
{
	const struct timespec time = in_ms(CLOCK_MONOTONIC, 0);

	return time.tv_sec * 1000 + time.tv_nsec / MS;
}

/* The priority that the kernel schedules the calling thread by. */
static int priority(void)
{
	struct sched_param found;

	CHECK(sched_getparam(0, &found) == 0);
	return found.sched_priority;
}

static void become(int level)
{
	CHECK(pthread_setschedparam(pthread_self(), SCHED_FIFO,
				    &(struct sched_param){ level }) == 0);
}

static void make_mutex(pthread_mutex_t *mutex, int protocol, int ceiling)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	CHECK(pthread_mutexattr_setprotocol(&attributes, protocol) == 0);
	if (protocol == PTHREAD_PRIO_PROTECT)
		CHECK(pthread_mutexattr_setprioceiling(&attributes, ceiling) == 0);
	CHECK(pthread_mutex_init(mutex, &attributes) == 0);
	pthread_mutexattr_destroy(&attributes);
}

CASE(a_mutex_raises_its_owner_to_its_ceiling)
{
	pthread_mutex_t outer, inner;
	int before;

	become(10);
	make_mutex(&outer, PTHREAD_PRIO_PROTECT, 30);
	make_mutex(&inner, PTHREAD_PRIO_PROTECT, 50);
	CHECK(pthread_mutex_lock(&outer) == 0 && priority() == 30);
	CHECK(pthread_mutex_lock(&inner) == 0 && priority() == 50);
	CHECK(pthread_mutex_unlock(&inner) == 0 && priority() == 30);
	CHECK(pthread_mutex_trylock(&inner) == 0 && priority() == 50);
	CHECK(pthread_mutex_unlock(&outer) == 0 && priority() == 50);
	CHECK(pthread_mutex_unlock(&inner) == 0 && priority() == 10);
	CHECK(pthread_mutex_setprioceiling(&inner, 20, &before) == 0 && before == 50);
	become(21);
	CHECK(pthread_mutex_lock(&inner) == EINVAL && priority() == 21);
	become(20);
	CHECK(pthread_mutex_lock(&inner) == 0 && pthread_mutex_unlock(&inner) == 0);
}

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int turn;
} turns;

static void *take_turns(void *which)
{
	become(10 + (long)which);
	for (int i = 0; i < 100; i++) {
		CHECK(pthread_mutex_lock(&turns.mutex) == 0);
		while (turns.turn % 3 != (long)which)
			CHECK(pthread_cond_wait(&turns.cond, &turns.mutex) == 0);
		CHECK(priority() == 40);
		turns.turn++;
		pthread_cond_broadcast(&turns.cond);
		CHECK(pthread_mutex_unlock(&turns.mutex) == 0);
	}
	CHECK(priority() == 10 + (long)which);
	return NULL;
}

CASE(threads_take_turns_by_a_mutex_with_a_ceiling)
{
	pthread_t threads[3];

	make_mutex(&turns.mutex, PTHREAD_PRIO_PROTECT, 40);
	pthread_cond_init(&turns.cond, NULL);
	turns.turn = 0;
	for (long i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, take_turns, (void *)i) == 0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	CHECK(turns.turn == 300);
}

/* What is waited for in vain, by either clock. */
static struct {
	pthread_mutex_t mutex[3], free;
	pthread_rwlock_t lock;
	pthread_cond_t cond;
	sem_t sem;
} kept;

static void *waits_in_vain(void *unused)
{
	const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };

	(void)unused;
	become(5);
	for (int i = 0; i < 2; i++) {
		const clockid_t clock = clocks[i];
		const long begin = now();
		struct timespec until;
		int count = 0;

#define IN_VAIN(call) \
		do { \
			until = in_ms(clock, 10); \
			CHECK((call) == ETIMEDOUT); \
			count++; \
		} while (0)
		for (int kind = 0; kind < 3; kind++)
			IN_VAIN(pthread_mutex_clocklock(&kept.mutex[kind], clock, &until));
		IN_VAIN(pthread_rwlock_clockrdlock(&kept.lock, clock, &until));
		IN_VAIN(pthread_rwlock_clockwrlock(&kept.lock, clock, &until));
		CHECK(pthread_mutex_lock(&kept.free) == 0);
		IN_VAIN(pthread_cond_clockwait(&kept.cond, &kept.free, clock, &until));
		CHECK(pthread_mutex_unlock(&kept.free) == 0);
		until = in_ms(clock, 10);
		FAILS(ETIMEDOUT, sem_clockwait(&kept.sem, clock, &until));
		CHECK(now() - begin >= count * 10);
	}
	return NULL;
}

CASE(waits_end_by_either_clock)
{
	const int protocols[] = { PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT, PTHREAD_PRIO_PROTECT };
	pthread_t thread;

	for (int kind = 0; kind < 3; kind++) {
		make_mutex(&kept.mutex[kind], protocols[kind], 30);
		become(5);
		CHECK(pthread_mutex_lock(&kept.mutex[kind]) == 0);
	}
	make_mutex(&kept.free, PTHREAD_PRIO_NONE, 0);
	pthread_rwlock_init(&kept.lock, NULL);
	CHECK(pthread_rwlock_wrlock(&kept.lock) == 0);
	pthread_cond_init(&kept.cond, NULL);
	sem_init(&kept.sem, 0, 0);
	CHECK(pthread_create(&thread, NULL, waits_in_vain, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	for (int kind = 0; kind < 3; kind++)
		CHECK(pthread_mutex_unlock(&kept.mutex[kind]) == 0);
}

static void *ends_late(void *unused)
{
	(void)unused;
	usleep(50000);
	return (void *)7;
}

CASE(the_end_of_a_thread_is_waited_for_in_time)
{
	struct timespec until = in_ms(CLOCK_MONOTONIC, 5);
	void *found = NULL;
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, ends_late, NULL) == 0);
	CHECK(pthread_tryjoin_np(thread, &found) == EBUSY);
	CHECK(pthread_clockjoin_np(thread, &found, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
	until = in_ms(CLOCK_REALTIME, 60000);
	CHECK(pthread_timedjoin_np(thread, &found, &until) == 0 && found == (void *)7);
}

static void *tells_itself(void *unused)
{
	struct sched_param found;
	cpu_set_t cpus;
	sigset_t mask;
	size_t size, guard;
	pthread_attr_t attributes;
	int policy;

	(void)unused;
	CHECK(sched_getscheduler(0) == SCHED_RR && priority() == 7);
	CHECK(pthread_getschedparam(pthread_self(), &policy, &found) == 0);
	CHECK(policy == SCHED_RR && found.sched_priority == 7);
	CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) == 1);
	CHECK(pthread_sigmask(0, NULL, &mask) == 0 && sigismember(&mask, SIGUSR2) == 1 &&
	      sigismember(&mask, SIGUSR1) == 0);
	CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
	CHECK(pthread_attr_getstacksize(&attributes, &size) == 0 && size >= 300000);
	CHECK(pthread_attr_getguardsize(&attributes, &guard) == 0 && guard == 16384);
	pthread_attr_destroy(&attributes);
	CHECK(pthread_setschedprio(pthread_self(), 9) == 0 && priority() == 9);
	return NULL;
}

CASE(a_thread_starts_with_its_attributes)
{
	pthread_attr_t attributes;
	cpu_set_t one = runner.cpus;
	pthread_t thread;
	sigset_t mask;

	/* The last one of those there are. */
	for (int cpu = 0; CPU_COUNT(&one) > 1; cpu++)
		CPU_CLR(cpu, &one);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR2);
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED) == 0);
	CHECK(pthread_attr_setschedpolicy(&attributes, SCHED_RR) == 0);
	CHECK(pthread_attr_setschedparam(&attributes, &(struct sched_param){ 7 }) == 0);
	CHECK(pthread_attr_setaffinity_np(&attributes, sizeof(one), &one) == 0);
	CHECK(pthread_attr_setsigmask_np(&attributes, &mask) == 0);
	CHECK(pthread_attr_setstacksize(&attributes, 320000) == 0);
	CHECK(pthread_attr_setguardsize(&attributes, 16384) == 0);
	CHECK(pthread_create(&thread, &attributes, tells_itself, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	pthread_attr_destroy(&attributes);
}

CASE(a_thread_that_may_not_run_is_not_started)
{
	pthread_attr_t attributes;
	cpu_set_t none;
	pthread_t thread;

	CPU_ZERO(&none);
	CPU_SET(1000, &none);
	CHECK(pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setaffinity_np(&attributes, sizeof(none), &none) == 0);
	CHECK(pthread_create(&thread, &attributes, ends_late, NULL) == EINVAL);
	CHECK(pthread_attr_setaffinity_np(&attributes, sizeof(runner.cpus), &runner.cpus) == 0);
	CHECK(pthread_create(&thread, &attributes, ends_late, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	pthread_attr_destroy(&attributes);
}

/* What a program finds that was started with all that can be asked for. */
ROLE(started)
{
	char folder[PATH_MAX], text[6] = "";
	struct sigaction action;
	sigset_t mask;

	(void)count;
	(void)arguments;
	CHECK(sched_getscheduler(0) == SCHED_FIFO && priority() == 6);
	CHECK(getpgrp() == getpid());
	CHECK(sigprocmask(0, NULL, &mask) == 0 && sigismember(&mask, SIGUSR1) == 1 &&
	      sigismember(&mask, SIGUSR2) == 0);
	CHECK(sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
	CHECK(sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler == SIG_IGN);
	CHECK(getcwd(folder, sizeof(folder)) && strcmp(folder, "/") == 0);
	CHECK(read(0, text, 5) == 5 && strcmp(text, "hello") == 0);
	FAILS(EBADF, fcntl(20, F_GETFD));
	FAILS(EBADF, fcntl(30, F_GETFD));
	CHECK(write(11, "done", 4) == 4);
	return 5;
}

CASE(a_program_starts_with_its_attributes)
{
	const int flags = POSIX_SPAWN_SETSCHEDULER | POSIX_SPAWN_SETSIGMASK |
			  POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_RESETIDS;
	const char *const self = "/proc/self/exe";
	char path[] = "/tmp/posix-XXXXXX", text[5] = "";
	char *const arguments[] = { "started", NULL };
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	int fd = mkstemp(path), ends[2];
	sigset_t mask;
	pid_t child;

	CHECK(fd >= 0 && write(fd, "hello", 5) == 5 && pipe(ends) == 0);
	CHECK(dup2(fd, 20) == 20 && dup2(ends[0], 30) == 30);
	signal(SIGHUP, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	CHECK(posix_spawnattr_init(&attributes) == 0);
	CHECK(posix_spawnattr_setflags(&attributes, flags) == 0);
	CHECK(posix_spawnattr_setschedpolicy(&attributes, SCHED_FIFO) == 0);
	CHECK(posix_spawnattr_setschedparam(&attributes, &(struct sched_param){ 6 }) == 0);
	sigemptyset(&mask);
	sigaddset(&mask, SIGHUP);
	CHECK(posix_spawnattr_setsigdefault(&attributes, &mask) == 0);
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	CHECK(posix_spawnattr_setsigmask(&attributes, &mask) == 0);
	CHECK(posix_spawn_file_actions_init(&actions) == 0);
	CHECK(posix_spawn_file_actions_addopen(&actions, 0, path, O_RDONLY, 0) == 0);
	CHECK(posix_spawn_file_actions_adddup2(&actions, ends[1], 11) == 0);
	CHECK(posix_spawn_file_actions_addclose(&actions, 30) == 0);
	CHECK(posix_spawn_file_actions_addclosefrom_np(&actions, 12) == 0);
	CHECK(posix_spawn_file_actions_addchdir_np(&actions, "/") == 0);
	CHECK(posix_spawn(&child, self, &actions, &attributes, arguments, environ) == 0);
	CHECK(exits_with(child, 5));
	CHECK(read(ends[0], text, sizeof(text)) == 4 && memcmp(text, "done", 4) == 0);
	/* What fails in the child is told here. */
	CHECK(posix_spawnattr_setschedparam(&attributes, &(struct sched_param){ 100 }) == 0);
	CHECK(posix_spawn(&child, self, NULL, &attributes, arguments, environ) == EINVAL);
	CHECK(posix_spawn_file_actions_addopen(&actions, 0, "/does/not/exist", O_RDONLY, 0) == 0);
	CHECK(posix_spawn(&child, self, &actions, NULL, arguments, environ) == ENOENT);
	FAILS(ECHILD, wait(NULL));
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	unlink(path);
}

static char order[4];

/* Appends a letter; the handlers of fork go on doing so. */
static void note(const char *what)
{
	if (strlen(order) < sizeof(order) - 1)
		strcat(order, what);
}

static void prepare_fork(void)
{
	note("p");
}

static void in_parent(void)
{
	note("f");
}

static void in_child(void)
{
	note("c");
}

CASE(handlers_of_fork_run_on_both_sides)
{
	pid_t child;

	CHECK(pthread_atfork(prepare_fork, in_parent, in_child) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(strcmp(order, "pc") == 0 ? 3 : 4);
	CHECK(exits_with(child, 3) && strcmp(order, "pf") == 0);
}

static ucontext_t outside, inside;

static void jumps(int first, int second)
{
	sigset_t mask;

	note(first == 3 && second == 4 ? "1" : "x");
	CHECK(sigprocmask(0, NULL, &mask) == 0 && sigismember(&mask, SIGUSR2) == 1);
	CHECK(swapcontext(&inside, &outside) == 0);
	note("3");
}

CASE(contexts_are_left_and_come_back)
{
	static char stack[65536];
	sigset_t mask;

	*order = 0;
	CHECK(getcontext(&inside) == 0);
	inside.uc_stack.ss_sp = stack;
	inside.uc_stack.ss_size = sizeof(stack);
	inside.uc_link = &outside;
	sigaddset(&inside.uc_sigmask, SIGUSR2);
	makecontext(&inside, (void (*)(void))jumps, 2, 3, 4);
	CHECK(swapcontext(&outside, &inside) == 0);
	CHECK(sigprocmask(0, NULL, &mask) == 0 && sigismember(&mask, SIGUSR2) == 0);
	note("2");
	CHECK(swapcontext(&outside, &inside) == 0);
	CHECK(strcmp(order, "123") == 0);
}

static sig_atomic_t finished;

static void finish(int number)
{
	finished += number == SIGRTMIN;
}

static void finish_in_thread(union sigval value)
{
	sem_post(value.sival_ptr);
}

CASE(transfers_go_on_meanwhile)
{
	char path[] = "/tmp/posix-XXXXXX", from[4096], to[2][4096], byte = 0;
	const int fd = mkstemp(path);
	struct aiocb blocks[4] = { 0 }, waiting = { 0 };
	struct aiocb *list[4];
	const struct aiocb *suspended[1] = { &waiting };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	struct timespec soon = { 0, 10 * MS };
	int ends[2];
	sem_t sem;

	CHECK(fd >= 0 && pipe(ends) == 0);
	memset(from, 'x', sizeof(from));
	for (int i = 0; i < 2; i++) {
		blocks[i] = (struct aiocb){ .aio_fildes = fd, .aio_buf = from, .aio_nbytes = 4096,
					    .aio_offset = 4096 * i, .aio_lio_opcode = LIO_WRITE };
		list[i] = &blocks[i];
	}
	CHECK(lio_listio(LIO_WAIT, list, 2, NULL) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(aio_error(&blocks[i]) == 0 && aio_return(&blocks[i]) == 4096);
	for (int i = 0; i < 2; i++) {
		blocks[i].aio_buf = to[i];
		blocks[i].aio_lio_opcode = LIO_READ;
	}
	signal(SIGRTMIN, finish);
	finished = 0;
	CHECK(lio_listio(LIO_NOWAIT, list, 2, &event) == 0);
	while (!finished)
		usleep(1000);
	for (int i = 0; i < 2; i++)
		CHECK(aio_error(&blocks[i]) == 0 && memcmp(from, to[i], 4096) == 0);
	/* A thread tells. */
	sem_init(&sem, 0, 0);
	blocks[2] = (struct aiocb){ .aio_fildes = fd };
	blocks[2].aio_sigevent.sigev_notify = SIGEV_THREAD;
	blocks[2].aio_sigevent.sigev_notify_function = finish_in_thread;
	blocks[2].aio_sigevent.sigev_value.sival_ptr = &sem;
	CHECK(aio_fsync(O_SYNC, &blocks[2]) == 0 && sem_wait(&sem) == 0);
	CHECK(aio_error(&blocks[2]) == 0 && aio_return(&blocks[2]) == 0);
	/* What waits is waited for. */
	waiting = (struct aiocb){ .aio_fildes = ends[0], .aio_buf = &byte, .aio_nbytes = 1 };
	CHECK(aio_read(&waiting) == 0);
	FAILS(EAGAIN, aio_suspend(suspended, 1, &soon));
	CHECK(aio_error(&waiting) == EINPROGRESS);
	CHECK(write(ends[1], "y", 1) == 1);
	CHECK(aio_suspend(suspended, 1, NULL) == 0 && aio_return(&waiting) == 1 && byte == 'y');
	unlink(path);
}

CASE(processes_find_a_semaphore_by_its_name)
{
	sem_t *here = sem_open("/posix-here", O_CREAT | O_EXCL, 0600, 0);
	sem_t *there = sem_open("/posix-there", O_CREAT | O_EXCL, 0600, 2);
	int value;
	pid_t child;

	CHECK(here != SEM_FAILED && there != SEM_FAILED);
	CHECK(sem_open("/posix-here", O_CREAT | O_EXCL, 0600, 0) == SEM_FAILED && errno == EEXIST);
	CHECK(sem_open("/posix-here", 0) == here);
	CHECK(sem_getvalue(there, &value) == 0 && value == 2);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		sem_t *own = sem_open("/posix-there", 0);

		for (int i = 0; i < 100; i++) {
			CHECK(sem_wait(own) == 0);
			CHECK(sem_post(here) == 0);
		}
		_exit(3);
	}
	for (int i = 0; i < 98; i++) {
		CHECK(sem_wait(here) == 0);
		CHECK(sem_post(there) == 0);
	}
	CHECK(exits_with(child, 3));
	CHECK(sem_getvalue(here, &value) == 0 && value == 2);
	CHECK(sem_unlink("/posix-here") == 0 && sem_unlink("/posix-there") == 0);
	FAILS(ENOENT, sem_unlink("/posix-here"));
	CHECK(sem_close(here) == 0 && sem_close(there) == 0);
}

static mtx_t standard_mutex;
static cnd_t standard_condition;
static tss_t standard_key;
static int standard_count, destroyed;

static void destroy(void *value)
{
	destroyed += *(int *)value;
}

static int counts(void *value)
{
	CHECK(tss_set(standard_key, value) == thrd_success);
	for (int i = 0; i < 100; i++) {
		CHECK(mtx_lock(&standard_mutex) == thrd_success);
		standard_count++;
		CHECK(mtx_unlock(&standard_mutex) == thrd_success);
	}
	cnd_signal(&standard_condition);
	thrd_sleep(&(struct timespec){ 0, MS }, NULL);
	return *(int *)value;
}

CASE(threads_of_the_language_count_and_end)
{
	int values[4] = { 1, 2, 3, 4 }, found;
	struct timespec until = in_ms(CLOCK_REALTIME, 5);
	thrd_t threads[4];

	CHECK(mtx_init(&standard_mutex, mtx_timed | mtx_recursive) == thrd_success);
	CHECK(cnd_init(&standard_condition) == thrd_success);
	CHECK(tss_create(&standard_key, destroy) == thrd_success);
	CHECK(mtx_lock(&standard_mutex) == thrd_success);
	CHECK(cnd_timedwait(&standard_condition, &standard_mutex, &until) == thrd_timedout);
	for (int i = 0; i < 4; i++)
		CHECK(thrd_create(&threads[i], counts, &values[i]) == thrd_success);
	while (standard_count < 400) {
		until = in_ms(CLOCK_REALTIME, 5);
		cnd_timedwait(&standard_condition, &standard_mutex, &until);
	}
	CHECK(mtx_unlock(&standard_mutex) == thrd_success);
	for (int i = 0; i < 4; i++)
		CHECK(thrd_join(threads[i], &found) == thrd_success && found == values[i]);
	CHECK(destroyed == 10);
}

/* Places in which a thread waits for ever. */
static struct {
	int pipe[2], full[2], socket[2], listener, locked, inotify, set;
	pid_t child;
	mqd_t queue;
	sem_t sem, *shared;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	int messages;
} forever;

static void wait_read(void)
{
	char byte;

	read(forever.pipe[0], &byte, 1);
}

static void wait_write(void)
{
	static char bytes[1 << 20];

	write(forever.full[1], bytes, sizeof(bytes));
}

static void wait_sleep(void)
{
	clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){ 1000, 0 }, NULL);
}

static void wait_pause(void)
{
	pause();
}

static void wait_sem(void)
{
	sem_wait(&forever.sem);
}

static void wait_shared_sem(void)
{
	sem_wait(forever.shared);
}

static void unlock(void *mutex)
{
	CHECK(pthread_mutex_unlock(mutex) == 0);
}

static void wait_cond(void)
{
	pthread_mutex_lock(&forever.mutex);
	pthread_cleanup_push(unlock, &forever.mutex);
	pthread_cond_wait(&forever.cond, &forever.mutex);
	pthread_cleanup_pop(1);
}

static void wait_signal(void)
{
	siginfo_t info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigwaitinfo(&set, &info);
}

static void wait_poll(void)
{
	struct pollfd fds = { forever.pipe[0], POLLIN, 0 };

	poll(&fds, 1, -1);
}

static void wait_poll_socket(void)
{
	struct pollfd fds[] = { { forever.pipe[0], POLLIN, 0 }, { forever.socket[0], POLLIN, 0 } };

	poll(fds, 2, -1);
}

static void wait_select(void)
{
	fd_set set;

	FD_ZERO(&set);
	FD_SET(forever.socket[0], &set);
	select(forever.socket[0] + 1, &set, NULL, NULL, NULL);
}

static void wait_epoll(void)
{
	struct epoll_event event;

	epoll_wait(forever.set, &event, 1, -1);
}

static void wait_receive(void)
{
	char byte;

	recv(forever.socket[0], &byte, 1, 0);
}

static void wait_accept(void)
{
	accept(forever.listener, NULL, NULL);
}

static void wait_message(void)
{
	struct { long kind; char text[8]; } message;

	msgrcv(forever.messages, &message, 8, 0, 0);
}

static void wait_queue(void)
{
	char bytes[8];

	mq_receive(forever.queue, bytes, 8, NULL);
}

static void wait_open(void)
{
	open("posix-fifo", O_RDONLY);
}

static void wait_lock(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	fcntl(forever.locked, F_OFD_SETLKW, &lock);
}

static void wait_child(void)
{
	int status;

	waitpid(forever.child, &status, 0);
}

static void wait_event(void)
{
	char bytes[512];

	read(forever.inotify, bytes, sizeof(bytes));
}

static volatile int cleaned, waits;

static void clean(void *unused)
{
	(void)unused;
	cleaned = 1;
}

static void *wait_there(void *place)
{
	pthread_cleanup_push(clean, NULL);
	waits = 1;
	((void (*)(void))place)();
	pthread_testcancel();
	pthread_cleanup_pop(0);
	return NULL;
}

static const struct place {
	const char *name;
	void (*wait)(void);
} places[] = {
	{ "read", wait_read }, { "write", wait_write }, { "sleep", wait_sleep },
	{ "pause", wait_pause }, { "semaphore", wait_sem }, { "shared semaphore", wait_shared_sem },
	{ "condition", wait_cond }, { "signal", wait_signal }, { "poll", wait_poll },
	{ "poll of a socket", wait_poll_socket }, { "select", wait_select },
	{ "epoll", wait_epoll }, { "receive", wait_receive }, { "accept", wait_accept },
	{ "message", wait_message }, { "queue", wait_queue }, { "open", wait_open },
	{ "lock", wait_lock }, { "child", wait_child }, { "event", wait_event },
};

/* Has all that is waited for, and nothing happens. */
static void make_places(void)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct mq_attr attributes = { .mq_maxmsg = 2, .mq_msgsize = 8 };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char path[] = "/tmp/posix-XXXXXX";
	int held = mkstemp(path), memory = memfd_create("posix", 0);

	CHECK(pipe(forever.pipe) == 0 && pipe(forever.full) == 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, forever.socket) == 0);
	forever.listener = socket(AF_UNIX, SOCK_STREAM, 0);
	/* A name of Linux's own choice. */
	CHECK(bind(forever.listener, (void *)&address, sizeof(address.sun_family)) == 0);
	CHECK(listen(forever.listener, 1) == 0);
	forever.locked = open(path, O_RDWR);
	CHECK(fcntl(held, F_OFD_SETLK, &lock) == 0 && forever.locked >= 0);
	unlink(path);
	forever.inotify = inotify_init();
	CHECK(inotify_add_watch(forever.inotify, ".", IN_DELETE_SELF) >= 0);
	forever.set = epoll_create1(0);
	CHECK(epoll_ctl(forever.set, EPOLL_CTL_ADD, forever.pipe[0],
			&(struct epoll_event){ .events = EPOLLIN }) == 0);
	forever.messages = msgget(IPC_PRIVATE, 0600);
	forever.queue = mq_open("/posix-queue", O_RDWR | O_CREAT, 0600, &attributes);
	CHECK(forever.messages >= 0 && forever.queue >= 0 && mq_unlink("/posix-queue") == 0);
	CHECK(mkfifo("posix-fifo", 0600) == 0);
	CHECK(ftruncate(memory, 4096) == 0);
	forever.shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	CHECK(forever.shared != MAP_FAILED && sem_init(forever.shared, 1, 0) == 0);
	sem_init(&forever.sem, 0, 0);
	pthread_mutex_init(&forever.mutex, NULL);
	pthread_cond_init(&forever.cond, NULL);
	forever.child = fork();
	CHECK(forever.child >= 0);
	if (forever.child == 0)
		for (;;)
			pause();
}

CASE(a_thread_is_cancelled_in_whatever_it_waits_in)
{
	make_places();
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
		for (int early = 0; early < 2; early++) {
			void *const wait = places[i].wait, *result;
			pthread_t thread;

			PART("%s, %s", places[i].name, early ? "early" : "late");
			cleaned = waits = 0;
			CHECK(pthread_create(&thread, NULL, wait_there, wait) == 0);
			while (!waits)
				usleep(100);
			if (!early)
				usleep(20000);
			CHECK(pthread_cancel(thread) == 0);
			CHECK(pthread_join(thread, &result) == 0);
			CHECK(result == PTHREAD_CANCELED && cleaned);
		}
	}
	CHECK(pthread_mutex_trylock(&forever.mutex) == 0);
	kill(forever.child, SIGKILL);
	CHECK(ends_by(forever.child, SIGKILL));
	CHECK(msgctl(forever.messages, IPC_RMID, NULL) == 0 && unlink("posix-fifo") == 0);
	CHECK(mq_close(forever.queue) == 0);
}
