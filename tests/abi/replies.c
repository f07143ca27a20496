// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Threads of real-time priority that make calls of Linux go on when these are done, whatever runs
 * meanwhile: a thread of the same priority that gives way, one of less than what the caller has by
 * then, one on the CPU where the caller was. Run as root.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <time.h>

#include "check.h"
#include "moments.h"

/* What the calls take, and how long others run at most, which is far more. In milliseconds. */
#define CALL 200
#define MOST 4000

/* How often a time is measured, of which the mean counts. */
#define ROUNDS 10

static int semaphore;
static atomic_int done, tid, running;
static pthread_mutex_t mutex;

/* A call that Linux makes, and that waits there for some milliseconds. */
static void wait_in_linux(long some)
{
	struct sembuf take = { 0, -1, 0 };
	struct timespec time = { 0, some * 1000000 };

	FAILS(EAGAIN, semtimedop(semaphore, &take, 1, &time));
}

static void sleep_ms(long some)
{
	struct timespec time = { some / 1000, some % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

static void become(int policy, int priority)
{
	struct sched_param param = { .sched_priority = priority };

	CHECK(sched_setscheduler(0, policy, &param) == 0);
}

static pthread_t start(int policy, int priority, void *(*body)(void *), void *argument)
{
	struct sched_param param = { .sched_priority = priority };
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attr, policy);
	pthread_attr_setschedparam(&attr, &param);
	CHECK(pthread_create(&thread, &attr, body, argument) == 0);
	pthread_attr_destroy(&attr);
	return thread;
}

/* Runs until the others are done, with `argument` giving way all the time. */
static void *hog(void *argument)
{
	long start = milliseconds();

	running = 1;
	while (!done && milliseconds() - start < MOST)
		if (argument)
			sched_yield();
	return done ? argument : (void *)&done;
}

/* Whether the thread of `hog`, which has `argument`, has ended since the others were done. */
static int ended_in_time(pthread_t thread, void *argument)
{
	void *result;

	pthread_join(thread, &result);
	return result == argument;
}

/* Makes `argument` calls while another thread runs. */
static void *ask_often(void *argument)
{
	while (!running)
		sleep_ms(1);
	for (long i = 0; i < (long)argument; i++)
		wait_in_linux(2);
	done = 1;
	return argument;
}

static void *wait_once(void *argument)
{
	tid = (int)syscall(SYS_gettid);
	wait_in_linux(CALL);
	done = 1;
	return argument;
}

static void *hold_the_mutex(void *argument)
{
	pthread_mutex_lock(&mutex);
	wait_in_linux(CALL);
	pthread_mutex_unlock(&mutex);
	return argument;
}

static void *want_the_mutex(void *argument)
{
	pthread_mutex_lock(&mutex);
	done = 1;
	pthread_mutex_unlock(&mutex);
	return argument;
}

BEFORE_EACH
{
	done = tid = running = 0;
	semaphore = semget(IPC_PRIVATE, 1, 0600);
	CHECK(semaphore >= 0);
	/* Threads begin with their policies. */
	become(SCHED_FIFO, 80);
}

static void finish(void)
{
	semctl(semaphore, 0, IPC_RMID);
	become(SCHED_OTHER, 0);
}

CASE(who_gives_way_lets_others_of_its_priority_go_on)
{
	pthread_t other = start(SCHED_FIFO, 20, ask_often, (void *)20);
	pthread_t yielder = start(SCHED_FIFO, 20, hog, &semaphore);

	CHECK(ended_in_time(yielder, &semaphore));
	pthread_join(other, NULL);
	finish();
}

CASE(threads_of_one_priority_take_turns)
{
	pthread_t other = start(SCHED_RR, 20, ask_often, (void *)10);
	pthread_t hogger = start(SCHED_RR, 20, hog, NULL);

	CHECK(ended_in_time(hogger, NULL));
	pthread_join(other, NULL);
	finish();
}

CASE(an_owner_inherits_during_a_call)
{
	pthread_t owner, waiter, hogger;
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	CHECK(pthread_mutex_init(&mutex, &attr) == 0);
	owner = start(SCHED_FIFO, 10, hold_the_mutex, NULL);
	sleep_ms(CALL / 4);
	waiter = start(SCHED_FIFO, 60, want_the_mutex, NULL);
	sleep_ms(CALL / 10);
	hogger = start(SCHED_FIFO, 30, hog, NULL);
	CHECK(ended_in_time(hogger, NULL));
	pthread_join(owner, NULL);
	pthread_join(waiter, NULL);
	finish();
}

CASE(a_thread_is_raised_during_a_call)
{
	struct sched_param param = { .sched_priority = 60 };
	pthread_t raised = start(SCHED_FIFO, 10, wait_once, NULL);
	pthread_t hogger;

	while (!tid)
		sleep_ms(1);
	sleep_ms(CALL / 10);
	CHECK(sched_setscheduler(tid, SCHED_FIFO, &param) == 0);
	hogger = start(SCHED_FIFO, 30, hog, NULL);
	CHECK(ended_in_time(hogger, NULL));
	pthread_join(raised, NULL);
	finish();
}

/* Waits in Linux; adds up by how much longer than that it takes. */
static void *wait_here(void *argument)
{
	long start = milliseconds();

	*(int *)argument = sched_getcpu();
	wait_once(NULL);
	return (void *)(milliseconds() - start - CALL);
}

CASE(a_call_is_over_where_the_caller_may_run)
{
	cpu_set_t cpus, one;
	pthread_t waiter, hogger;
	long late, sum = 0;
	int cpu;

	CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
	if (CPU_COUNT(&cpus) < 2)
		return finish();
	for (int round = 0; round < ROUNDS; round++) {
		done = tid = 0;
		waiter = start(SCHED_FIFO, 10, wait_here, &cpu);
		while (!tid)
			sleep_ms(1);
		sleep_ms(CALL / 10);
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		hogger = start(SCHED_FIFO, 30, hog, NULL);
		CHECK(pthread_setaffinity_np(hogger, sizeof(one), &one) == 0);
		CHECK(ended_in_time(hogger, NULL));
		pthread_join(waiter, (void **)&late);
		sum += late;
	}
	CHECK(sum / ROUNDS < 60);
	finish();
}
