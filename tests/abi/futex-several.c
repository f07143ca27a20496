// SPDX-License-Identifier: MIT OR Apache-2.0
/* futex_waitv: waiting at several words at once. */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "check.h"
#include "moments.h"

#define PRIVATE (FUTEX_32 | FUTEX_PRIVATE_FLAG)
#define MOST 128

static uint32_t words[MOST];
static struct futex_waitv all[MOST + 1];

/* Describes the first `count` of these words, each of which is to be 0. */
static struct futex_waitv *describe(uint32_t *at, int count, uint32_t flags)
{
	for (int i = 0; i < count; i++)
		all[i] = (struct futex_waitv){ .uaddr = (uintptr_t)&at[i], .flags = flags };
	return all;
}

static long wait_several(const void *waiters, unsigned int count, unsigned int flags,
			 const void *timeout, int clock)
{
	return syscall(SYS_futex_waitv, waiters, count, flags, timeout, clock);
}

static long futex(uint32_t *at, int operation, int value, long second_value, uint32_t *second)
{
	return syscall(SYS_futex, at, operation, value, second_value, second, 0);
}

static long wake(uint32_t *at, int count)
{
	return futex(at, FUTEX_WAKE_PRIVATE, count, 0, NULL);
}

/* How many wait at a word. */
static long queued(uint32_t *at)
{
	return futex(at, FUTEX_REQUEUE_PRIVATE, 0, INT_MAX, at);
}

/* Wakes one who waits at a word, or is about to. */
static void wake_one(uint32_t *at, int operation)
{
	long woken;

	while ((woken = futex(at, operation, 1, 0, NULL)) == 0)
		usleep(1000);
	CHECK(woken == 1);
}

struct waiter {
	pthread_t thread;
	struct futex_waitv *all;
	int count;
	volatile long result;
};

static void *waiting(void *argument)
{
	struct waiter *waiter = argument;

	waiter->result = wait_several(waiter->all, waiter->count, 0, NULL, 0);
	return NULL;
}

static void start(struct waiter *waiter, struct futex_waitv *several, int count)
{
	waiter->all = several;
	waiter->count = count;
	waiter->result = -1;
	CHECK(pthread_create(&waiter->thread, NULL, waiting, waiter) == 0);
}

static long end(struct waiter *waiter)
{
	CHECK(pthread_join(waiter->thread, NULL) == 0);
	return waiter->result;
}

CASE(who_is_woken_is_told_where)
{
	static const int counts[] = { 1, 2, 3, 17, MOST };
	struct waiter waiter;

	for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
		for (int which = 0; which < counts[i]; which += 1 + counts[i] / 3) {
			PART("%d of %d", which, counts[i]);
			start(&waiter, describe(words, counts[i], PRIVATE), counts[i]);
			wake_one(&words[which], FUTEX_WAKE_PRIVATE);
			CHECK(end(&waiter) == which);
			/* It waits nowhere any more. */
			for (int other = 0; other < counts[i]; other++)
				CHECK(queued(&words[other]) == 0);
		}
}

CASE(one_word_several_times)
{
	struct waiter waiter;
	long result;

	describe(words, 3, PRIVATE);
	all[2].uaddr = all[0].uaddr;
	start(&waiter, all, 3);
	wake_one(&words[0], FUTEX_WAKE_PRIVATE);
	result = end(&waiter);
	CHECK(result == 0 || result == 2);
	CHECK(queued(&words[0]) == 0 && queued(&words[1]) == 0);
}

CASE(waiters_of_both_kinds)
{
	struct waiter waiters[3];
	static struct futex_waitv several[3][2];

	for (int i = 0; i < 3; i++) {
		memcpy(several[i], describe(words, 2, PRIVATE), sizeof(several[i]));
		start(&waiters[i], several[i], i ? 2 : 1);
	}
	while (queued(&words[0]) < 3)
		usleep(1000);
	CHECK(queued(&words[1]) == 2);
	CHECK(wake(&words[0], 2) == 2);
	while (queued(&words[0]) > 1)
		usleep(1000);
	CHECK(wake(&words[0], 5) == 1);
	for (int i = 0; i < 3; i++)
		CHECK(end(&waiters[i]) == 0);
	CHECK(queued(&words[1]) == 0);
}

/* Who is moved is told of the word where it began to wait. */
CASE(a_waiter_is_moved)
{
	struct waiter waiter;

	start(&waiter, describe(words, 2, PRIVATE), 2);
	while (queued(&words[1]) == 0)
		usleep(1000);
	CHECK(futex(&words[1], FUTEX_REQUEUE_PRIVATE, 0, 1, &words[7]) == 1);
	CHECK(wake(&words[1], 1) == 0 && wake(&words[7], 1) == 1);
	CHECK(end(&waiter) == 1);
	CHECK(queued(&words[0]) == 0);
}

CASE(a_word_that_has_changed)
{
	uint32_t own[3] = { 0, 0, 1 };

	FAILS(EAGAIN, wait_several(describe(own, 3, PRIVATE), 3, 0, NULL, 0));
	CHECK(queued(&own[0]) == 0 && queued(&own[1]) == 0);
	own[0] = 7;
	FAILS(EAGAIN, wait_several(describe(own, 3, FUTEX_32), 3, 0, NULL, 0));
}

CASE(a_time_after_which_it_ends)
{
	static const int clocks[] = { CLOCK_MONOTONIC, CLOCK_REALTIME };
	struct timespec until, now;

	for (int i = 0; i < 2; i++) {
		clock_gettime(clocks[i], &until);
		describe(words, 5, PRIVATE);
		FAILS(ETIMEDOUT, wait_several(all, 5, 0, &until, clocks[i]));
		until.tv_nsec += 30000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		FAILS(ETIMEDOUT, wait_several(all, 5, 0, &until, clocks[i]));
		clock_gettime(clocks[i], &now);
		CHECK(now.tv_sec > until.tv_sec ||
		      (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec));
		CHECK(queued(&words[4]) == 0);
	}
	FAILS(EINVAL, wait_several(all, 5, 0, &until, CLOCK_BOOTTIME));
	until.tv_nsec = 1000000000;
	FAILS(EINVAL, wait_several(all, 5, 0, &until, CLOCK_MONOTONIC));
	FAILS(EFAULT, wait_several(all, 5, 0, at(16), CLOCK_MONOTONIC));
}

CASE(wrong_arguments)
{
	describe(words, MOST, PRIVATE);
	FAILS(EINVAL, wait_several(all, 0, 0, NULL, 0));
	FAILS(EINVAL, wait_several(all, MOST + 1, 0, NULL, 0));
	FAILS(EINVAL, wait_several(all, 2, 1, NULL, 0));
	FAILS(EINVAL, wait_several(NULL, 2, 0, NULL, 0));
	FAILS(EFAULT, wait_several(at(16), 2, 0, NULL, 0));
	all[1].flags = FUTEX_PRIVATE_FLAG | 0x100;
	FAILS(EINVAL, wait_several(all, 2, 0, NULL, 0));
	all[1].flags = FUTEX_PRIVATE_FLAG;
	FAILS(EINVAL, wait_several(all, 2, 0, NULL, 0));
	all[1].flags = PRIVATE;
	all[1].__reserved = 1;
	FAILS(EINVAL, wait_several(all, 2, 0, NULL, 0));
	all[1].__reserved = 0;
	all[1].uaddr += 2;
	FAILS(EINVAL, wait_several(all, 2, 0, NULL, 0));
	all[1].uaddr = 16;
	FAILS(EFAULT, wait_several(all, 2, 0, NULL, 0));
	all[1].flags = FUTEX_32;
	FAILS(EFAULT, wait_several(all, 2, 0, NULL, 0));
	CHECK(queued(&words[0]) == 0);
}

static volatile int caught;

static void catch(int number)
{
	caught = number;
}

/* Has SIGALRM come soon, and again. */
static void alarm_soon(void)
{
	const struct itimerval soon = { { 0, 50000 }, { 0, 50000 } };

	caught = 0;
	CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void stop_alarm(void)
{
	const struct itimerval never = { { 0, 0 }, { 0, 0 } };

	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

CASE(a_signal_ends_it_or_does_not)
{
	struct sigaction action = { .sa_handler = catch };
	struct timespec until;

	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	alarm_soon();
	FAILS(EINTR, wait_several(describe(words, 3, PRIVATE), 3, 0, NULL, 0));
	stop_alarm();
	CHECK(caught == SIGALRM && queued(&words[2]) == 0);
	/* It is made again, and the time stays as it is. */
	action.sa_flags = SA_RESTART;
	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec++;
	alarm_soon();
	FAILS(ETIMEDOUT, wait_several(all, 3, 0, &until, CLOCK_MONOTONIC));
	stop_alarm();
	CHECK(caught == SIGALRM);
}

/* Processes that share memory; `kind`: what it is. */
static void between_processes(uint32_t *shared, const char *kind)
{
	pid_t child;
	int status;

	CHECK(shared != MAP_FAILED);
	PART("%s", kind);
	child = fork();
	if (child == 0)
		_exit(wait_several(describe(shared, 10, FUTEX_32), 10, 0, NULL, 0));
	shared[0] = 0;
	wake_one(&shared[6], FUTEX_WAKE);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 6);
	/* Who is killed waits no more. */
	child = fork();
	if (child == 0)
		_exit(wait_several(describe(shared, 10, FUTEX_32), 10, 0, NULL, 0));
	while (futex(&shared[9], FUTEX_REQUEUE, 0, INT_MAX, &shared[9]) == 0)
		usleep(1000);
	kill(child, SIGKILL);
	CHECK(waitpid(child, &status, 0) == child);
	for (int i = 0; i < 10; i++)
		CHECK(futex(&shared[i], FUTEX_WAKE, 1, 0, NULL) == 0);
}

static uint32_t *shared(int kind, int fd)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | kind, fd, 0);
}

CASE(processes_that_share_memory)
{
	int memory = memfd_create("words", 0);

	CHECK(memory >= 0 && ftruncate(memory, 4096) == 0);
	between_processes(shared(MAP_ANONYMOUS, -1), "anonymous");
	between_processes(shared(0, memory), "a file");
}

#define THREADS 6
#define ROUNDS 300
#define OWN 40

static uint32_t tickets[THREADS][OWN];
static volatile int over;

/* Changes a word now and then, and wakes who waits for it. */
static void *changing(void *argument)
{
	unsigned int seed = (uintptr_t)argument;

	while (!over) {
		uint32_t *ticket = &tickets[rand_r(&seed) % THREADS][rand_r(&seed) % OWN];

		__atomic_add_fetch(ticket, 1, __ATOMIC_SEQ_CST);
		wake(ticket, 1);
	}
	return NULL;
}

/* Waits for words to change; finds each time that the one that it is told of has. */
static void *following(void *argument)
{
	uint32_t *own = tickets[(uintptr_t)argument];
	struct futex_waitv several[OWN];

	for (int round = 0; round < ROUNDS; round++) {
		long result;

		for (int i = 0; i < OWN; i++)
			several[i] = (struct futex_waitv){
				.uaddr = (uintptr_t)&own[i],
				.flags = PRIVATE,
				.val = __atomic_load_n(&own[i], __ATOMIC_SEQ_CST),
			};
		result = wait_several(several, OWN, 0, NULL, 0);
		CHECK((result >= 0 && result < OWN) || errno == EAGAIN);
	}
	return NULL;
}

CASE(no_wake_up_is_lost)
{
	pthread_t threads[THREADS], changers[2];

	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, following, (void *)i) == 0);
	for (uintptr_t i = 0; i < 2; i++)
		CHECK(pthread_create(&changers[i], NULL, changing, (void *)(i + 1)) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	over = 1;
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(changers[i], NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		for (int word = 0; word < OWN; word++)
			CHECK(queued(&tickets[i][word]) == 0);
}
