// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* futex: waiting, waking, moving waiters, timeouts, signals, order by priority and errors. */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "check.h"
#include "moments.h"

#define THREADS 8

static uint32_t word, other, order[THREADS];
static atomic_int places, finished;

static long futex(void *address, int operation, uint32_t value, const void *timeout, void *second,
		  uint32_t third)
{
	return syscall(SYS_futex, address, operation, value, timeout, second, third);
}

static long private(void *address, int operation, uint32_t value, const void *timeout)
{
	return futex(address, operation | FUTEX_PRIVATE_FLAG, value, timeout, NULL,
		     FUTEX_BITSET_MATCH_ANY);
}

static int passed(clockid_t clock, const struct timespec *time)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec > time->tv_sec ||
	       (now.tv_sec == time->tv_sec && now.tv_nsec >= time->tv_nsec);
}

/* Returns how many threads wait at a word, by moving them to where they are. */
static long queued(uint32_t *at)
{
	return futex(at, FUTEX_REQUEUE_PRIVATE, 0, (void *)(long)INT_MAX, at, 0);
}

/* Waits until so many threads have been woken. */
static void await_finished(int count)
{
	for (int waited = 0; waited < 5000 && finished < count; waited++)
		pause_for(1);
}

struct waiter {
	pthread_t thread;
	uint32_t *word;
	uint32_t bits;
	int priority;
	long result;
};

static void *wait_here(void *argument)
{
	struct waiter *waiter = argument;
	struct sched_param param = { waiter->priority };

	if (waiter->priority)
		sched_setscheduler(0, SCHED_FIFO, &param);
	waiter->result = futex(waiter->word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL,
			       waiter->bits);
	order[places++] = waiter->priority ? (uint32_t)waiter->priority : waiter->bits;
	finished++;
	return NULL;
}

static void start(struct waiter *waiter, uint32_t *at, uint32_t bits, int priority)
{
	long before = queued(at);

	*waiter = (struct waiter){ 0, at, bits, priority, -1 };
	pthread_create(&waiter->thread, NULL, wait_here, waiter);
	while (queued(at) == before)
		pause_for(1);
}

static void join(struct waiter *waiters, int count)
{
	for (int i = 0; i < count; i++) {
		pthread_join(waiters[i].thread, NULL);
		/* A wake-up has ended the wait. */
		CHECK(!waiters[i].result);
	}
	places = finished = 0;
}

CASE(another_value_is_told)
{
	struct timespec zero = { 0, 0 };

	word = 7;
	FAILS(EAGAIN, private(&word, FUTEX_WAIT, 8, NULL));
	FAILS(EAGAIN, futex(&word, FUTEX_WAIT, 8, NULL, NULL, 0));
	FAILS(ETIMEDOUT, private(&word, FUTEX_WAIT, 7, &zero));
	FAILS(EAGAIN, private(&word, FUTEX_WAIT, 8, &zero));
}

CASE(bad_times_are_refused)
{
	struct timespec bad = { 0, 1000000000 }, negative = { -1, 0 };
	char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	word = 7;
	FAILS(EINVAL, private(&word, FUTEX_WAIT, 7, &bad));
	FAILS(EINVAL, private(&word, FUTEX_WAIT, 7, &negative));
	FAILS(EFAULT, private(&word, FUTEX_WAIT, 7, page));
}

CASE(bad_words_are_refused)
{
	char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint32_t *unaligned = (uint32_t *)((char *)&word + 2);

	word = 7;
	FAILS(EINVAL, private(unaligned, FUTEX_WAIT, 7, NULL));
	FAILS(EINVAL, private(unaligned, FUTEX_WAKE, 1, NULL));
	FAILS(EFAULT, private(page, FUTEX_WAIT, 0, NULL));
	FAILS(EFAULT, futex(page, FUTEX_WAKE, 1, NULL, NULL, 0));
	CHECK(private(page, FUTEX_WAKE, 1, NULL) == 0);
	FAILS(EFAULT, private((void *)(1UL << 63), FUTEX_WAKE, 1, NULL));
	FAILS(EFAULT, private((void *)8, FUTEX_WAIT, 0, NULL));
	munmap(page, 4096);
}

CASE(bad_operations_are_refused)
{
	struct timespec zero = { 0, 0 };

	word = 7;
	FAILS(EINVAL, futex(&word, FUTEX_WAIT_BITSET, 7, NULL, NULL, 0));
	FAILS(EINVAL, futex(&word, FUTEX_WAKE_BITSET, 7, NULL, NULL, 0));
	FAILS(ENOSYS, futex(&word, 77, 7, NULL, NULL, 0));
	FAILS(ENOSYS, futex(&word, FUTEX_FD, 7, NULL, NULL, 0));
	FAILS(ENOSYS, futex(&word, FUTEX_WAIT | FUTEX_CLOCK_REALTIME, 7, &zero, NULL, 0));
	FAILS(ENOSYS, futex(&word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 7, NULL, NULL, 0));
	FAILS(EINVAL, futex(&word, FUTEX_CMP_REQUEUE, -1, NULL, &other, 7));
	FAILS(EINVAL, futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)-1, &other, 7));
	FAILS(EAGAIN, futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &other, 8));
}

CASE(nobody_is_woken_where_nobody_waits)
{
	word = 7;
	CHECK(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &other, 7) == 0);
	CHECK(private(&word, FUTEX_WAKE, INT_MAX, NULL) == 0);
}

CASE(a_wait_ends_in_time)
{
	struct timespec relative = { 0, 30000000 }, time = after(CLOCK_MONOTONIC, 30);

	word = 0;
	FAILS(ETIMEDOUT, private(&word, FUTEX_WAIT, 0, &relative));
	CHECK(passed(CLOCK_MONOTONIC, &time));
	time = after(CLOCK_MONOTONIC, 30);
	FAILS(ETIMEDOUT, private(&word, FUTEX_WAIT_BITSET, 0, &time));
	CHECK(passed(CLOCK_MONOTONIC, &time));
	time = after(CLOCK_REALTIME, 30);
	FAILS(ETIMEDOUT, private(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &time));
	CHECK(passed(CLOCK_REALTIME, &time));
}

static atomic_int handled, returned;

static void handler(int signal)
{
	(void)signal;
	handled = 1;
}

static void *interrupted(void *argument)
{
	struct timespec long_time = { 15, 0 };

	FAILS(EINTR, private(&word, FUTEX_WAIT, 0, argument ? &long_time : NULL));
	returned = 1;
	return NULL;
}

static void *restarted(void *argument)
{
	(void)argument;
	CHECK(private(&word, FUTEX_WAIT, 0, NULL) == 0);
	returned = 1;
	return NULL;
}

static void interrupt(void *(*body)(void *), void *argument, int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
	pthread_t thread;

	handled = returned = 0;
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&thread, NULL, body, argument);
	while (queued(&word) == 0)
		pause_for(1);
	pthread_kill(thread, SIGUSR1);
	/* It has returned, or waits again. */
	for (int waited = 0; waited < 5000 && !(returned || (handled && queued(&word))); waited++)
		pause_for(1);
	private(&word, FUTEX_WAKE, 1, NULL);
	pthread_join(thread, NULL);
}

CASE(a_handler_ends_a_wait)
{
	interrupt(interrupted, NULL, 0);
}

CASE(a_handler_ends_a_wait_with_a_timeout)
{
	int number = 5;

	interrupt(interrupted, &number, 0);
}

/* SA_RESTART does not change that. */
CASE(a_wait_with_a_timeout_is_not_made_again)
{
	int number = 5;

	interrupt(interrupted, &number, SA_RESTART);
}

/* The handler has SA_RESTART. */
CASE(a_wait_without_a_timeout_is_made_again)
{
	interrupt(restarted, NULL, SA_RESTART);
}

CASE(as_many_are_woken_as_asked_for)
{
	struct waiter waiters[THREADS];
	int i;

	word = other = 0;
	for (i = 0; i < 4; i++)
		start(&waiters[i], &word, FUTEX_BITSET_MATCH_ANY, 0);
	CHECK(futex(&word, FUTEX_WAKE, 9, NULL, NULL, 0) == 0);
	CHECK(private(&other, FUTEX_WAKE, 9, NULL) == 0);
	CHECK(private(&word, FUTEX_WAKE, 1, NULL) == 1);
	CHECK(private(&word, FUTEX_WAKE, 0, NULL) == 1);
	CHECK(private(&word, FUTEX_WAKE, INT_MAX, NULL) == 2);
	CHECK(private(&word, FUTEX_WAKE, INT_MAX, NULL) == 0);
	join(waiters, 4);
}

CASE(waiters_are_woken_by_their_bits)
{
	struct waiter waiters[THREADS];
	int i;

	word = other = 0;
	for (i = 0; i < 4; i++)
		start(&waiters[i], &word, 1 << i, 0);
	CHECK(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, 9, NULL, NULL, 0x10) == 0);
	CHECK(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, 9, NULL, NULL, 0x14) == 1);
	await_finished(1);
	CHECK(order[0] == 4);
	CHECK(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, 9, NULL, NULL, 0xa) == 2);
	CHECK(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, 9, NULL, NULL, FUTEX_BITSET_MATCH_ANY) == 1);
	join(waiters, 4);
}

CASE(the_highest_is_woken_first)
{
	static const int levels[] = { 10, 30, 20, 40, 15 };
	static const uint32_t expected[] = { 40, 30, 20, 15, 10 };
	struct waiter waiters[5];
	int i, right = 1;

	for (i = 0; i < 5; i++)
		start(&waiters[i], &word, FUTEX_BITSET_MATCH_ANY, levels[i]);
	for (i = 0; i < 5; i++) {
		private(&word, FUTEX_WAKE, 1, NULL);
		await_finished(i + 1);
		right &= order[i] == expected[i];
	}
	CHECK(right);
	join(waiters, 5);
}

CASE(waiters_are_moved_to_another_word)
{
	struct waiter waiters[THREADS];
	int i;

	word = other = 0;
	for (i = 0; i < THREADS; i++)
		start(&waiters[i], &word, FUTEX_BITSET_MATCH_ANY, 0);
	CHECK(futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 1, (void *)2, &other, 0) == 3);
	CHECK(futex(&word, FUTEX_REQUEUE_PRIVATE, 0, (void *)1, &other, 0) == 1);
	CHECK(private(&other, FUTEX_WAKE, INT_MAX, NULL) == 3);
	CHECK(futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 0, (void *)INT_MAX, &other, 0) == 4);
	CHECK(private(&word, FUTEX_WAKE, INT_MAX, NULL) == 0);
	CHECK(private(&other, FUTEX_WAKE, INT_MAX, NULL) == 4);
	join(waiters, THREADS);
}

#define ENCODE(operation, argument, comparison, with) \
	((operation) << 28 | ((comparison) << 24) | (((argument) & 0xfff) << 12) | ((with) & 0xfff))

static long change(uint32_t encoded)
{
	return futex(&word, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &other, encoded);
}

CASE(a_wake_changes_the_other_word)
{
	word = 0;
	other = 5;
	CHECK(change(ENCODE(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 5)) == 0 && other == 8);
	CHECK(change(ENCODE(FUTEX_OP_ADD, -1, FUTEX_OP_CMP_EQ, 5)) == 0 && other == 7);
	CHECK(change(ENCODE(FUTEX_OP_OR, 8, FUTEX_OP_CMP_NE, 5)) == 0 && other == 15);
	CHECK(change(ENCODE(FUTEX_OP_ANDN, 6, FUTEX_OP_CMP_LT, 5)) == 0 && other == 9);
	CHECK(change(ENCODE(FUTEX_OP_XOR, 3, FUTEX_OP_CMP_LE, 5)) == 0 && other == 10);
	CHECK(change(ENCODE(FUTEX_OP_SET | FUTEX_OP_OPARG_SHIFT, 4U, FUTEX_OP_CMP_GT, 5)) == 0 &&
	      other == 16);
	FAILS(ENOSYS, change(ENCODE(6U, 0, 0, 0)));
	FAILS(ENOSYS, change(ENCODE(FUTEX_OP_SET, 1, 9, 0)));
	CHECK(other == 1);
}

CASE(a_wake_of_two_words_depends_on_the_second)
{
	struct waiter waiters[4];
	int i;

	word = 0;
	other = 0;
	for (i = 0; i < 4; i++)
		start(&waiters[i], i < 2 ? &word : &other, FUTEX_BITSET_MATCH_ANY, 0);
	CHECK(change(ENCODE(FUTEX_OP_SET, 1, FUTEX_OP_CMP_EQ, 0)) == 2);
	CHECK(change(ENCODE(FUTEX_OP_SET, 2, FUTEX_OP_CMP_EQ, 0)) == 1);
	CHECK(private(&other, FUTEX_WAKE, 9, NULL) == 1);
	join(waiters, 4);
}

/* What two threads hand back and forth. */
static uint32_t ball;

static void *play(void *argument)
{
	uint32_t me = (long)argument, i;

	for (i = 0; i < 1000; i++) {
		uint32_t now;

		while ((now = __atomic_load_n(&ball, __ATOMIC_SEQ_CST)) % 2 != me)
			private(&ball, FUTEX_WAIT, now, NULL);
		__atomic_add_fetch(&ball, 1, __ATOMIC_SEQ_CST);
		private(&ball, FUTEX_WAKE, 1, NULL);
	}
	return NULL;
}

CASE(no_wake_up_is_lost_between_two_threads)
{
	pthread_t players[2];

	for (long i = 0; i < 2; i++)
		pthread_create(&players[i], NULL, play, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(players[i], NULL);
	CHECK(ball == 2000);
}
