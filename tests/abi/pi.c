// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/*
 * Locks with an owner: inheritance along chains, deadlocks, timeouts, dead owners, and moving
 * waiters to them.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#include "check.h"
#include "moments.h"
#include "one-cpu.h"

static uint32_t words[8];
static atomic_int stage, started;

static pid_t gettid_(void)
{
	return syscall(SYS_gettid);
}

static long futex(void *address, int operation, uint32_t value, const void *timeout, void *second,
		  uint32_t third)
{
	return syscall(SYS_futex, address, operation | FUTEX_PRIVATE_FLAG, value, timeout, second,
		       third);
}

static long lock(uint32_t *word, const struct timespec *timeout)
{
	uint32_t free = 0;

	if (__atomic_compare_exchange_n(word, &free, gettid_(), 0, __ATOMIC_SEQ_CST,
					__ATOMIC_SEQ_CST))
		return 0;
	return futex(word, FUTEX_LOCK_PI, 0, timeout, NULL, 0);
}

static long unlock(uint32_t *word)
{
	uint32_t mine = gettid_();

	if (__atomic_compare_exchange_n(word, &mine, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		return 0;
	return futex(word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0);
}

static void priority(int level)
{
	struct sched_param param = { level };

	if (sched_setscheduler(0, level ? SCHED_FIFO : SCHED_OTHER, &param))
		perror("sched_setscheduler");
}

static void await(int value)
{
	while (stage < value)
		pause_for(1);
}

/* Waits until somebody waits for a lock. */
static void await_waiter(uint32_t *word)
{
	while (!(*(volatile uint32_t *)word & FUTEX_WAITERS))
		pause_for(1);
	pause_for(10);
}

static cpu_set_t all;

/*
 * Keeps this thread, and those that it creates, on one processor. Whenever it runs, the real-time
 * threads wait.
 */
static void share_processor(void)
{
	sched_getaffinity(0, sizeof(all), &all);
	share_a_cpu();
}

static void share_no_more(void)
{
	sched_setaffinity(0, sizeof(all), &all);
}

CASE(a_lock_that_is_not_ones_own_is_not_given_back)
{
	uint32_t *word = &words[0];

	FAILS(EPERM, futex(word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
}

CASE(a_lock_belongs_to_who_takes_it)
{
	struct timespec past = { 0, 0 }, bad = { 0, -1 };
	uint32_t *word = &words[0], me = gettid_();

	CHECK(futex(word, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0 && *word == me);
	FAILS(EDEADLK, futex(word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	FAILS(EDEADLK, futex(word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
	FAILS(EDEADLK, futex(word, FUTEX_LOCK_PI, 0, &past, NULL, 0));
	FAILS(EINVAL, futex(word, FUTEX_LOCK_PI, 0, &bad, NULL, 0));
	FAILS(EFAULT, futex(word, FUTEX_LOCK_PI, 0, (void *)8, NULL, 0));
	CHECK(futex(word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0 && *word == 0);
	CHECK(futex(word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0) == 0 && *word == me);
	*word |= FUTEX_WAITERS;
	CHECK(futex(word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0 && *word == 0);
}

CASE(a_lock_whose_owner_has_died_says_so)
{
	uint32_t *word = &words[0], me = gettid_();

	*word = FUTEX_OWNER_DIED;
	CHECK(futex(word, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0 &&
	      *word == (me | FUTEX_OWNER_DIED));
	CHECK(futex(word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0 && *word == 0);
}

CASE(a_lock_of_an_unknown_owner_is_refused)
{
	uint32_t *word = &words[0];

	*word = 0x3ffffffe;
	FAILS(ESRCH, futex(word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	CHECK(*word == (0x3ffffffe | FUTEX_WAITERS));
	FAILS(EPERM, futex(word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
	*word = 0;
}

CASE(bad_words_are_refused)
{
	uint32_t *word = &words[0];

	*word = 0x3ffffffe | FUTEX_WAITERS;
	FAILS(EINVAL, futex((char *)word + 1, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	FAILS(EFAULT, futex((void *)8, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	FAILS(EFAULT, futex((void *)8, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
	FAILS(EFAULT, futex((void *)8, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
}

CASE(bad_moves_are_refused)
{
	uint32_t *word = &words[0];

	*word = 0x3ffffffe | FUTEX_WAITERS;
	FAILS(EINVAL, futex(word, FUTEX_WAIT_REQUEUE_PI, 0, NULL, word, 0));
	FAILS(EAGAIN, futex(word, FUTEX_WAIT_REQUEUE_PI, 0, NULL, &words[1], 0));
	FAILS(EINVAL, futex(word, FUTEX_CMP_REQUEUE_PI, 1, NULL, word, 0));
	FAILS(EINVAL, futex(word, FUTEX_CMP_REQUEUE_PI, 2, NULL, &words[1], 0));
	FAILS(EAGAIN, futex(word, FUTEX_CMP_REQUEUE_PI, 1, NULL, &words[1], 0));
	*word = 0;
}

/* Holds a lock until told. */
static void *hold(void *argument)
{
	uint32_t *word = argument;

	lock(word, NULL);
	stage = 1;
	await(2);
	CHECK(unlock(word) == 0);
	return NULL;
}

CASE(a_wait_for_a_lock_ends_in_time)
{
	struct timespec time;
	uint32_t *word = &words[0], owner;
	pthread_t thread;

	stage = 0;
	pthread_create(&thread, NULL, hold, word);
	await(1);
	owner = *word;
	time = after(CLOCK_REALTIME, 30);
	FAILS(ETIMEDOUT, futex(word, FUTEX_LOCK_PI, 0, &time, NULL, 0));
	CHECK(*word == (owner | FUTEX_WAITERS));
	time = after(CLOCK_MONOTONIC, 30);
	FAILS(ETIMEDOUT, futex(word, FUTEX_LOCK_PI2, 0, &time, NULL, 0));
	time = after(CLOCK_REALTIME, 30);
	FAILS(ETIMEDOUT, futex(word, FUTEX_LOCK_PI2 | FUTEX_CLOCK_REALTIME, 0, &time, NULL, 0));
	FAILS(EAGAIN, futex(word, FUTEX_TRYLOCK_PI, 0, NULL, NULL, 0));
	FAILS(EPERM, futex(word, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0));
	stage = 2;
	CHECK(lock(word, NULL) == 0);
	pthread_join(thread, NULL);
	CHECK((*word & FUTEX_TID_MASK) == (uint32_t)gettid_());
	CHECK(unlock(word) == 0 && *word == 0);
}

/* Owns one lock and wants the one before: a link of a chain. */
static void *link_of_chain(void *argument)
{
	long number = (long)argument;

	lock(&words[number], NULL);
	started++;
	if (number > 0)
		lock(&words[number - 1], NULL);
	else
		await(2);
	if (number > 0)
		unlock(&words[number - 1]);
	unlock(&words[number]);
	return NULL;
}

CASE(a_chain_of_locks_is_given_on)
{
	pthread_t threads[4];

	stage = started = 0;
	lock(&words[7], NULL);
	for (long i = 0; i < 4; i++) {
		pthread_create(&threads[i], NULL, link_of_chain, (void *)i);
		while (started <= i)
			pause_for(1);
		if (i > 0)
			await_waiter(&words[i - 1]);
	}
	stage = 2;
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	unlock(&words[7]);
	CHECK(words[0] == 0 && words[3] == 0);
}

static void *second_of_circle(void *argument)
{
	(void)argument;
	lock(&words[1], NULL);
	long result = lock(&words[0], NULL);

	unlock(&words[0]);
	unlock(&words[1]);
	return (void *)result;
}

CASE(a_circle_is_refused)
{
	pthread_t thread;
	void *result;

	lock(&words[0], NULL);
	pthread_create(&thread, NULL, second_of_circle, NULL);
	await_waiter(&words[0]);
	FAILS(EDEADLK, futex(&words[1], FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	FAILS(EINVAL, futex(&words[0], FUTEX_WAKE, 1, NULL, NULL, 0));
	CHECK(unlock(&words[0]) == 0);
	CHECK(pthread_join(thread, &result) == 0 && result == NULL);
	CHECK(words[0] == 0 && words[1] == 0);
}

/*
 * Inversion on one CPU: low holds, middle burns, high waits. Without inheritance low would not run
 * before middle ends, and high not before low. With chain set, there is a link between low and
 * high.
 */
static atomic_int burning, ended[3];
static atomic_int clock_;

static void *low(void *argument)
{
	priority(10);
	lock(&words[0], NULL);
	stage = 1;
	await(3);
	for (volatile int i = 0; i < 1000000; i++)
		;
	ended[0] = ++clock_;
	unlock(&words[0]);
	return argument;
}

static void *between(void *argument)
{
	priority(12);
	lock(&words[1], NULL);
	stage = 2;
	lock(&words[0], NULL);
	unlock(&words[0]);
	unlock(&words[1]);
	return argument;
}

static void *middle(void *argument)
{
	struct timespec start, now;

	priority(20);
	burning = 1;
	clock_gettime(CLOCK_MONOTONIC, &start);
	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec * 1000 + now.tv_nsec / 1000000 - start.tv_sec * 1000 -
				 start.tv_nsec / 1000000 <
			 300 &&
		 !ended[2]);
	ended[1] = ++clock_;
	return argument;
}

static void *high(void *argument)
{
	priority(30);
	stage = 3;
	lock(argument ? &words[1] : &words[0], NULL);
	ended[2] = ++clock_;
	unlock(argument ? &words[1] : &words[0]);
	return NULL;
}

static void inversion(void *chain)
{
	pthread_t threads[4];
	int count = 0;

	share_processor();
	priority(50);
	stage = 0;
	clock_ = burning = ended[0] = ended[1] = ended[2] = 0;
	pthread_create(&threads[count++], NULL, low, NULL);
	await(1);
	if (chain) {
		pthread_create(&threads[count++], NULL, between, NULL);
		await(2);
		await_waiter(&words[0]);
	}
	pthread_create(&threads[count++], NULL, high, chain);
	await(3);
	pthread_create(&threads[count++], NULL, middle, NULL);
	priority(0);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	CHECK(ended[0] == 1 && ended[2] == 2 && ended[1] == 3);
	share_no_more();
}

CASE(an_owner_inherits_the_priority_of_a_waiter)
{
	inversion(NULL);
}

CASE(an_owner_inherits_along_a_chain)
{
	inversion(&words[1]);
}

/* In which order threads got the lock. */
static int order[4];
static atomic_int place;
static pid_t tids[4];

static void *in_order(void *argument)
{
	static const int levels[] = { 10, 30, 20, 15 };
	long number = (long)argument;

	tids[number] = gettid_();
	priority(levels[number]);
	started++;
	lock(&words[0], NULL);
	order[place++] = number;
	unlock(&words[0]);
	return NULL;
}

static void queue(int change)
{
	pthread_t threads[4];
	struct sched_param param = { 40 };

	share_processor();
	started = place = 0;
	lock(&words[0], NULL);
	for (long i = 0; i < 4; i++) {
		pthread_create(&threads[i], NULL, in_order, (void *)i);
		while (started <= i)
			pause_for(1);
		pause_for(10);
	}
	if (change)
		pthread_setschedparam(threads[0], SCHED_FIFO, &param);
	unlock(&words[0]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	share_no_more();
	if (change)
		CHECK(order[0] == 0 && order[1] == 1 && order[2] == 2 && order[3] == 3);
	else
		CHECK(order[0] == 1 && order[1] == 2 && order[2] == 3 && order[3] == 0);
}

CASE(a_lock_goes_to_the_highest_waiter)
{
	queue(0);
}

CASE(a_lock_goes_to_the_highest_waiter_after_a_change)
{
	queue(1);
}

static void handler(int signal)
{
	(void)signal;
}

static void *signalled(void *argument)
{
	started++;
	CHECK(futex(argument, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
	CHECK(unlock(argument) == 0);
	return NULL;
}

/* The call is made again, whatever the flags of the handler are. */
CASE(a_handler_does_not_end_the_wait_for_a_lock)
{
	struct sigaction action = { .sa_handler = handler };
	pthread_t thread;

	sigaction(SIGUSR1, &action, NULL);
	started = 0;
	lock(&words[0], NULL);
	pthread_create(&thread, NULL, signalled, &words[0]);
	await_waiter(&words[0]);
	pthread_kill(thread, SIGUSR1);
	pause_for(20);
	unlock(&words[0]);
	pthread_join(thread, NULL);
}

/* Ends as the owner of a lock that another thread waits for. */
static void *die(void *argument)
{
	lock(argument, NULL);
	stage = 1;
	await_waiter(argument);
	return NULL;
}

static void *die_alone(void *argument)
{
	lock(argument, NULL);
	return NULL;
}

static void *inherit(void *argument)
{
	CHECK(futex(argument, FUTEX_LOCK_PI, 0, NULL, NULL, 0) == 0);
	CHECK(*(uint32_t *)argument == ((uint32_t)gettid_() | FUTEX_OWNER_DIED | FUTEX_WAITERS));
	CHECK(futex(argument, FUTEX_UNLOCK_PI, 0, NULL, NULL, 0) == 0);
	return NULL;
}

CASE(a_waiter_gets_the_lock_of_a_dead_owner)
{
	pthread_t threads[2];
	uint32_t *word = &words[0];

	stage = 0;
	pthread_create(&threads[0], NULL, die, word);
	await(1);
	pthread_create(&threads[1], NULL, inherit, word);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	CHECK(*word == 0);
}

/* Nobody has waited for it while the owner lived. */
CASE(the_lock_of_a_dead_owner_is_refused)
{
	pthread_t threads[2];
	uint32_t *word = &words[0];

	pthread_create(&threads[0], NULL, die_alone, word);
	pthread_join(threads[0], NULL);
	FAILS(ESRCH, futex(word, FUTEX_LOCK_PI, 0, NULL, NULL, 0));
	*word = 0;
}

/* A thread that waits at a condition, words[2], and is moved to its mutex, words[3]. */
struct mover {
	pthread_t thread;
	const struct timespec *timeout;
	long result;
	int error;
};

static void *wait_for_move(void *argument)
{
	struct mover *mover = argument;

	priority(10);
	started++;
	mover->result = futex(&words[2], FUTEX_WAIT_REQUEUE_PI, 0, mover->timeout, &words[3], 0);
	mover->error = errno;
	if (mover->result == 0)
		unlock(&words[3]);
	return NULL;
}

CASE(waiters_are_moved_to_a_lock)
{
	struct mover movers[4] = { 0 };
	struct timespec soon = after(CLOCK_MONOTONIC, 50), later;
	long time, moved;

	share_processor();
	words[2] = words[3] = 0;
	started = 0;
	movers[0].timeout = &soon;
	pthread_create(&movers[0].thread, NULL, wait_for_move, &movers[0]);
	pthread_join(movers[0].thread, NULL);
	CHECK(movers[0].result == -1 && movers[0].error == ETIMEDOUT);
	movers[0].timeout = NULL;
	started = 0;
	for (int i = 0; i < 3; i++) {
		pthread_create(&movers[i].thread, NULL, wait_for_move, &movers[i]);
		while (started <= i)
			pause_for(1);
		pause_for(10);
	}
	FAILS(EINVAL, futex(&words[2], FUTEX_WAKE, 1, NULL, NULL, 0));
	FAILS(EINVAL, futex(&words[2], FUTEX_CMP_REQUEUE, 1, (void *)1, &words[4], 0));
	FAILS(EINVAL, futex(&words[2], FUTEX_CMP_REQUEUE_PI, 1, (void *)1, &words[4], 0));
	/* Free: the first gets it. The mutex taken: the others wait for it. */
	CHECK(futex(&words[2], FUTEX_CMP_REQUEUE_PI, 1, (void *)0, &words[3], 0) == 1);
	pthread_join(movers[0].thread, NULL);
	CHECK(movers[0].result == 0);
	lock(&words[3], NULL);
	CHECK(futex(&words[2], FUTEX_CMP_REQUEUE_PI, 1, (void *)100, &words[3], 0) == 2);
	pause_for(10);
	CHECK(unlock(&words[3]) == 0);
	pthread_join(movers[1].thread, NULL);
	pthread_join(movers[2].thread, NULL);
	CHECK(movers[1].result == 0 && movers[2].result == 0);
	CHECK(words[3] == 0);
	/* Moved, and then the time is over, which has to be long enough for that. */
	movers[0].timeout = &later;
	for (time = 100, moved = 0; moved == 0 && time < 20000; time *= 4) {
		later = after(CLOCK_MONOTONIC, time);
		started = 0;
		lock(&words[3], NULL);
		pthread_create(&movers[0].thread, NULL, wait_for_move, &movers[0]);
		while (!started)
			pause_for(1);
		pause_for(10);
		moved = futex(&words[2], FUTEX_CMP_REQUEUE_PI, 1, (void *)100, &words[3], 0);
		pthread_join(movers[0].thread, NULL);
		if (movers[0].result != -1 || movers[0].error != ETIMEDOUT || unlock(&words[3]))
			moved = -1;
	}
	CHECK(moved == 1);
	share_no_more();
}
