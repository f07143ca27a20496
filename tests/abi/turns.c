// SPDX-License-Identifier: MIT OR Apache-2.0
/* How ordinary threads share a CPU. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "moments.h"
#include "one-cpu.h"

#define ROUNDS 41
#define US 1000L
#define MS 1000000L

/* A thread that is always busy, on the CPU of the one that started it. */
static struct {
	pthread_t thread;
	clockid_t clock;
	int ends;
} busy;

static void *spin(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&busy.ends, __ATOMIC_RELAXED))
		;
	return NULL;
}

/* Has all threads of the process on one CPU from now on, a busy one among them. */
static void share(void)
{
	CHECK(share_a_cpu() == 0);
	busy.ends = 0;
	CHECK(pthread_create(&busy.thread, NULL, spin, NULL) == 0);
	CHECK(pthread_getcpuclockid(busy.thread, &busy.clock) == 0);
}

static void stop(void)
{
	__atomic_store_n(&busy.ends, 1, __ATOMIC_RELAXED);
	pthread_join(busy.thread, NULL);
}

static int by_size(const void *one, const void *other)
{
	long a = *(const long *)one, b = *(const long *)other;

	return (a > b) - (a < b);
}

/* How long the busy thread runs during a call of `f`: the median. */
static long runs_during(void (*f)(int), int argument)
{
	long times[ROUNDS];

	for (int round = 0; round < ROUNDS; round++) {
		long begin = shown(busy.clock);

		f(argument);
		times[round] = shown(busy.clock) - begin;
	}
	qsort(times, ROUNDS, sizeof(times[0]), by_size);
	return times[ROUNDS / 2];
}

static void sleep_shortly(int unused)
{
	struct timespec time = timespec(200 * US);

	(void)unused;
	CHECK(nanosleep(&time, NULL) == 0);
}

static void read_file(int fd)
{
	char byte;

	CHECK(pread(fd, &byte, 1, 0) == 1);
}

/* Works for a while, as its own clock shows it. */
static void work(long time)
{
	long end = shown(CLOCK_THREAD_CPUTIME_ID) + time;

	while (shown(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

CASE(a_thread_that_slept_does_not_wait_for_the_turn_of_a_busy_one)
{
	share();
	CHECK(runs_during(sleep_shortly, 0) < 7 * MS);
	stop();
}

CASE(a_thread_that_reads_a_file_does_not_wait_for_the_turn_of_a_busy_one)
{
	int fd = open("/proc/self/exe", O_RDONLY);

	CHECK(fd >= 0);
	share();
	CHECK(runs_during(read_file, fd) < 7 * MS);
	stop();
	close(fd);
}

/* Two pipes between a thread that answers and one that asks. */
static int there[2], back[2];

static void *answer(void *unused)
{
	char byte;

	(void)unused;
	while (read(there[0], &byte, 1) == 1)
		CHECK(write(back[1], &byte, 1) == 1);
	return NULL;
}

static void ask(int unused)
{
	char byte = 0;

	(void)unused;
	CHECK(write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1);
}

CASE(threads_that_answer_each_other_do_not_wait_for_the_turn_of_a_busy_one)
{
	pthread_t thread;

	CHECK(pipe(there) == 0 && pipe(back) == 0);
	share();
	CHECK(pthread_create(&thread, NULL, answer, NULL) == 0);
	CHECK(runs_during(ask, 0) < 7 * MS);
	stop();
	close(there[1]);
	pthread_join(thread, NULL);
	close(there[0]);
	close(back[0]);
	close(back[1]);
}

CASE(a_thread_that_sleeps_often_leaves_a_busy_one_its_share)
{
	long begin, own;

	share();
	begin = shown(busy.clock);
	own = shown(CLOCK_THREAD_CPUTIME_ID);
	for (int round = 0; round < 400; round++) {
		work(500 * US);
		sleep_shortly(0);
	}
	own = shown(CLOCK_THREAD_CPUTIME_ID) - own;
	CHECK(shown(busy.clock) - begin > own / 3);
	stop();
}
