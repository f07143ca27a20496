// SPDX-License-Identifier: MIT OR Apache-2.0
// also: musl
/*
 * exchange FILE COMMAND...: two programs that wait for each other in one piece of memory, by what
 * the C library has for several processes.
 *
 * exchange FILE make: makes the file.
 * exchange FILE turns ROLE COUNT [KIND...]: role 0 and role 1 take turns; each prints the kinds.
 * exchange FILE hold: takes the robust mutex, says so, and keeps it.
 * exchange FILE exit: takes the robust mutex, says so, and ends a moment later.
 * exchange FILE take: takes the robust mutex, and prints what it got.
 * exchange FILE wait: waits for the semaphore.
 * exchange FILE post COUNT: posts the semaphore.
 * exchange FILE steady PERIODS: posts the semaphore each millisecond, as a real-time thread; prints
 *	the latest that it began.
 * exchange FILE flood THREADS: so many threads wait for the semaphore, again and again.
 * exchange FILE many WORDS: so many threads wait, each at a word of its own, and end.
 * exchange FILE wakes WORDS: a real-time thread changes so many words and wakes who waits there,
 *	then stays.
 * exchange FILE drop: posts the semaphore, unmaps the memory at once, and stays.
 * exchange FILE pi-hold: takes the mutex that inherits, says so, and gives it back at a signal.
 * exchange FILE pi-take: takes it, for which it waits three seconds at most, and prints
 *	what it got.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Seconds after which somebody waits in vain. */
#define PATIENCE 300
#define MOST_WORDS 512

struct shared {
	pthread_mutex_t mutex, robust, busy, inheriting;
	pthread_cond_t cond;
	pthread_barrier_t barrier;
	pthread_rwlock_t lock;
	sem_t sem[2], queue;
	long turn, counter, protected;
	_Atomic uint32_t words[MOST_WORDS];
};

static struct shared *shared;
static int role;
static long count;

static void fail(const char *what, int error)
{
	printf("%s: %s\n", what, strerror(error));
	exit(1);
}

#define CHECK(call) do { int error_ = (call); if (error_) fail(#call, error_); } while (0)

static void make(void)
{
	pthread_mutexattr_t mutex;
	pthread_condattr_t cond;
	pthread_barrierattr_t barrier;
	pthread_rwlockattr_t lock;

	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	CHECK(pthread_mutex_init(&shared->mutex, &mutex));
	CHECK(pthread_mutex_init(&shared->busy, &mutex));
	pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
	CHECK(pthread_mutex_init(&shared->robust, &mutex));
	pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_STALLED);
	pthread_mutexattr_setprotocol(&mutex, PTHREAD_PRIO_INHERIT);
	CHECK(pthread_mutex_init(&shared->inheriting, &mutex));
	pthread_condattr_init(&cond);
	pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
	pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
	CHECK(pthread_cond_init(&shared->cond, &cond));
	pthread_barrierattr_init(&barrier);
	pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
	CHECK(pthread_barrier_init(&shared->barrier, &barrier, 2));
	pthread_rwlockattr_init(&lock);
	pthread_rwlockattr_setpshared(&lock, PTHREAD_PROCESS_SHARED);
	CHECK(pthread_rwlock_init(&shared->lock, &lock));
	sem_init(&shared->sem[0], 1, 0);
	sem_init(&shared->sem[1], 1, 0);
	sem_init(&shared->queue, 1, 0);
}

static void get(sem_t *sem)
{
	while (sem_wait(sem))
		if (errno != EINTR)
			fail("sem_wait", errno);
}

/* By turns: each waits for the other one's signal. */
static void cond(void)
{
	long turn;

	CHECK(pthread_mutex_lock(&shared->mutex));
	for (turn = role; turn < 2 * count; turn += 2) {
		while (shared->turn != turn)
			CHECK(pthread_cond_wait(&shared->cond, &shared->mutex));
		shared->turn++;
		CHECK(pthread_cond_signal(&shared->cond));
	}
	CHECK(pthread_mutex_unlock(&shared->mutex));
}

static void sem(void)
{
	long turn;

	for (turn = 0; turn < count; turn++) {
		if (role)
			get(&shared->sem[0]);
		sem_post(&shared->sem[!!role]);
		if (!role)
			get(&shared->sem[1]);
	}
}

static void barrier(void)
{
	long turn;
	int result;

	for (turn = 0; turn < count; turn++) {
		result = pthread_barrier_wait(&shared->barrier);
		if (result && result != PTHREAD_BARRIER_SERIAL_THREAD)
			fail("barrier", result);
	}
}

/* Both at once, and each keeps it for a moment. */
static void mutex(void)
{
	long turn;

	for (turn = 0; turn < count; turn++) {
		CHECK(pthread_mutex_lock(&shared->busy));
		shared->protected++;
		sched_yield();
		CHECK(pthread_mutex_unlock(&shared->busy));
	}
}

static void rwlock(void)
{
	long turn, before;

	for (turn = 0; turn < count; turn++) {
		CHECK(pthread_rwlock_wrlock(&shared->lock));
		before = shared->counter++;
		sched_yield();
		if (shared->counter != before + 1)
			fail("two writers", 0);
		CHECK(pthread_rwlock_unlock(&shared->lock));
		CHECK(pthread_rwlock_rdlock(&shared->lock));
		before = shared->counter;
		sched_yield();
		if (shared->counter != before)
			fail("a writer beside a reader", 0);
		CHECK(pthread_rwlock_unlock(&shared->lock));
	}
}

static const struct { const char *name; void (*run)(void); } kinds[] = {
	{ "cond", cond }, { "sem", sem }, { "barrier", barrier }, { "mutex", mutex },
	{ "rwlock", rwlock },
};

static void turns(char **wanted)
{
	size_t i, j;

	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		for (j = 0; wanted[j] && strcmp(wanted[j], kinds[i].name); j++)
			;
		if (*wanted && !wanted[j])
			continue;
		printf("%s\n", kinds[i].name);
		kinds[i].run();
		/* By the semaphores, whose turn it is: the barrier is one of the kinds. */
		sem_post(&shared->sem[!!role]);
		get(&shared->sem[!role]);
	}
	printf("protected %ld, counted %ld\n", shared->protected, shared->counter);
}

static void hold(int keep)
{
	CHECK(pthread_mutex_lock(&shared->robust));
	printf("held\n");
	if (!keep) {
		usleep(300000);
		_exit(0);
	}
	for (;;)
		pause();
}

static void take(void)
{
	int error = pthread_mutex_lock(&shared->robust);

	printf("%s\n", error == EOWNERDEAD ? "the owner died" : error ? strerror(error) : "free");
	if (error == EOWNERDEAD)
		CHECK(pthread_mutex_consistent(&shared->robust));
	CHECK(pthread_mutex_unlock(&shared->robust));
}

static void *drain(void *unused)
{
	(void)unused;
	for (;;)
		get(&shared->queue);
	return NULL;
}

static void flood(long threads)
{
	pthread_t thread;

	while (threads-- > 1)
		CHECK(pthread_create(&thread, NULL, drain, NULL));
	printf("waiting\n");
	drain(NULL);
}

static void begin_real_time(void)
{
	struct sched_param param = { .sched_priority = 80 };

	/* musl's function of that name does nothing. */
	if (syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &param) ||
	    mlockall(MCL_CURRENT | MCL_FUTURE))
		fail("real time", errno);
}

static void steady(long periods)
{
	struct timespec next, now;
	long late, latest = 0;

	begin_real_time();
	sem_post(&shared->queue);
	clock_gettime(CLOCK_MONOTONIC, &next);
	while (periods--) {
		next.tv_nsec += 1000000;
		if (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
		clock_gettime(CLOCK_MONOTONIC, &now);
		late = (now.tv_sec - next.tv_sec) * 1000000000 + now.tv_nsec - next.tv_nsec;
		latest = late > latest ? late : latest;
		sem_post(&shared->queue);
	}
	printf("%ld\n", latest);
}

static void *wait_there(void *argument)
{
	_Atomic uint32_t *word = argument;

	while (!*word)
		syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
	return NULL;
}

static void many(long words)
{
	pthread_t threads[MOST_WORDS];
	long i;

	for (i = 0; i < words; i++)
		CHECK(pthread_create(&threads[i], NULL, wait_there, (void *)&shared->words[i]));
	printf("waiting\n");
	for (i = 0; i < words; i++)
		CHECK(pthread_join(threads[i], NULL));
}

static void wakes(long words)
{
	long i;

	begin_real_time();
	for (i = 0; i < words; i++) {
		shared->words[i] = 1;
		syscall(SYS_futex, &shared->words[i], FUTEX_WAKE, 1, NULL, NULL, 0);
	}
	printf("all\n");
	for (;;)
		pause();
}

static void hold_inheriting(void)
{
	sigset_t usr1;
	int signal;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	CHECK(pthread_mutex_lock(&shared->inheriting));
	printf("held\n");
	sigwait(&usr1, &signal);
	CHECK(pthread_mutex_unlock(&shared->inheriting));
	printf("given back\n");
}

static void take_inheriting(void)
{
	struct timespec limit;
	int error;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 3;
	error = pthread_mutex_timedlock(&shared->inheriting, &limit);
	printf("%s\n", error ? strerror(error) : "taken");
	if (!error)
		CHECK(pthread_mutex_unlock(&shared->inheriting));
}

int main(int argc, char **argv)
{
	int fd = open(argc > 2 ? argv[1] : "", O_RDWR | O_CREAT, 0600);
	const char *command = argv[2];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (fd < 0 || ftruncate(fd, sizeof(*shared)))
		fail("the file", errno);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		fail("mmap", errno);
	if (!strcmp(command, "hold") || !strcmp(command, "exit"))
		hold(*command == 'h');
	alarm(PATIENCE);
	if (!strcmp(command, "make")) {
		make();
	} else if (!strcmp(command, "turns") && argc > 4) {
		role = atoi(argv[3]);
		count = atol(argv[4]);
		turns(argv + 5);
	} else if (!strcmp(command, "take")) {
		take();
	} else if (!strcmp(command, "wait")) {
		printf("waiting\n");
		get(&shared->queue);
		printf("got it\n");
	} else if (!strcmp(command, "post") && argc > 3) {
		for (count = atol(argv[3]); count > 0; count--)
			sem_post(&shared->queue);
	} else if (!strcmp(command, "flood") && argc > 3) {
		alarm(0);
		flood(atol(argv[3]));
	} else if (!strcmp(command, "steady") && argc > 3) {
		steady(atol(argv[3]));
	} else if (!strcmp(command, "many") && argc > 3 && atol(argv[3]) <= MOST_WORDS) {
		many(atol(argv[3]));
	} else if (!strcmp(command, "wakes") && argc > 3 && atol(argv[3]) <= MOST_WORDS) {
		wakes(atol(argv[3]));
	} else if (!strcmp(command, "drop")) {
		sem_post(&shared->queue);
		munmap(shared, sizeof(*shared));
		printf("gone\n");
		pause();
	} else if (!strcmp(command, "pi-hold")) {
		hold_inheriting();
	} else if (!strcmp(command, "pi-take")) {
		take_inheriting();
	} else {
		return 2;
	}
	return 0;
}
