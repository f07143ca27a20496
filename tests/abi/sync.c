// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
// also: musl
/*
 * What POSIX threads make of futexes, within a process and between processes: mutexes of all kinds,
 * conditions, barriers, semaphores, and locks for readers and writers.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "moments.h"

#define THREADS 6
#define ROUNDS 60

static struct shared {
	pthread_mutex_t mutex, second;
	pthread_cond_t changed;
	pthread_barrier_t barrier;

	pthread_rwlock_t lock;
	sem_t items, free;
	int count, turn, slots[4], in, out;
	atomic_int readers, most, serial, stage;
} *s;

static pthread_mutexattr_t attributes(int type, int protocol, int robust, int shared)
{
	pthread_mutexattr_t a;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, type);
	pthread_mutexattr_setprotocol(&a, protocol);
	pthread_mutexattr_setrobust(&a, robust);
	pthread_mutexattr_setpshared(&a, shared);
	return a;
}

static void make(pthread_mutex_t *mutex, int type, int protocol, int robust, int shared)
{
	pthread_mutexattr_t a = attributes(type, protocol, robust, shared);

	CHECK(pthread_mutex_init(mutex, &a) == 0);
	pthread_mutexattr_destroy(&a);
}

static void *count_up(void *argument)
{
	for (int i = 0; i < ROUNDS; i++) {
		int before;

		CHECK(pthread_mutex_lock(&s->mutex) == 0);
		before = s->count;
		if (i % 20 == 0)
			sched_yield();
		s->count = before + 1;
		CHECK(pthread_mutex_unlock(&s->mutex) == 0);
	}
	return argument;
}

/* Runs `body` in threads of this process, or half of them in a child. */
static void together(void *(*body)(void *), int processes)
{
	pthread_t threads[THREADS];
	pid_t child = processes ? fork() : -1;
	int status = 0;

	for (long i = 0; i < THREADS / 2; i++)
		pthread_create(&threads[i], NULL, body, (void *)(child ? i : i + THREADS / 2));
	if (child == -1)
		for (long i = THREADS / 2; i < THREADS; i++)
			pthread_create(&threads[i], NULL, body, (void *)i);
	for (int i = 0; i < (child == -1 ? THREADS : THREADS / 2); i++)
		pthread_join(threads[i], NULL);
	if (child == 0)
		_exit(0);
	if (child > 0)
		CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* All types, robust or not. */
static void mutexes(int protocol, int shared)
{
	static const int types[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE,
				     PTHREAD_MUTEX_ERRORCHECK };

	for (int robust = 0; robust < 2; robust++)
		for (int type = 0; type < 3; type++) {
			PART("type %d, robust %d", type, robust);
			make(&s->mutex, types[type], protocol, robust, shared);
			s->count = 0;
			together(count_up, shared);
			CHECK(s->count == THREADS * ROUNDS);
			CHECK(pthread_mutex_trylock(&s->mutex) == 0);
			if (type == 1)
				CHECK(pthread_mutex_lock(&s->mutex) == 0 &&
				      pthread_mutex_unlock(&s->mutex) == 0);
			if (type == 2)
				CHECK(pthread_mutex_lock(&s->mutex) == EDEADLK);
			CHECK(pthread_mutex_unlock(&s->mutex) == 0);
			CHECK(pthread_mutex_destroy(&s->mutex) == 0);
		}
}

/* Dies with one lock, or with two. */
static void *die(void *argument)
{
	pthread_mutex_lock(&s->mutex);
	if (argument)
		pthread_mutex_lock(&s->second);
	s->stage = 1;
	while (s->stage == 1)
		pause_for(1);
	pause_for(10);
	return NULL;
}

static void robust(int protocol, int processes)
{
	struct timespec soon;
	pthread_t thread;
	pid_t child = -1;

	make(&s->mutex, PTHREAD_MUTEX_NORMAL, protocol, PTHREAD_MUTEX_ROBUST, processes);
	make(&s->second, PTHREAD_MUTEX_NORMAL, protocol, PTHREAD_MUTEX_ROBUST, processes);
	s->stage = 0;
	if (processes) {
		child = fork();
		if (child == 0) {
			die(s);
			raise(SIGKILL);
		}
	} else {
		pthread_create(&thread, NULL, die, s);
	}
	while (!s->stage)
		pause_for(1);
	soon = after(CLOCK_REALTIME, 5);
	CHECK(pthread_mutex_timedlock(&s->second, &soon) == ETIMEDOUT);
	CHECK(pthread_mutex_trylock(&s->mutex) == EBUSY);
	s->stage = 2;
	CHECK(pthread_mutex_lock(&s->mutex) == EOWNERDEAD);
	CHECK(pthread_mutex_consistent(&s->mutex) == 0);
	CHECK(pthread_mutex_unlock(&s->mutex) == 0);
	CHECK(pthread_mutex_lock(&s->mutex) == 0 && pthread_mutex_unlock(&s->mutex) == 0);
	if (processes)
		waitpid(child, NULL, 0);
	else
		pthread_join(thread, NULL);
	CHECK(pthread_mutex_lock(&s->second) == EOWNERDEAD);
	CHECK(pthread_mutex_unlock(&s->second) == 0);
	CHECK(pthread_mutex_lock(&s->second) == ENOTRECOVERABLE);
	pthread_mutex_destroy(&s->mutex);
}

static void *take_turns(void *argument)
{
	int me = (long)argument;

	for (int i = 0; i < 10; i++) {
		pthread_mutex_lock(&s->mutex);
		while (s->turn % THREADS != me)
			pthread_cond_wait(&s->changed, &s->mutex);
		s->turn++;
		pthread_cond_broadcast(&s->changed);
		pthread_mutex_unlock(&s->mutex);
	}
	return NULL;
}

static void conditions(int protocol, int shared, clockid_t clock)
{
	pthread_condattr_t a;
	struct timespec soon;

	make(&s->mutex, PTHREAD_MUTEX_NORMAL, protocol, PTHREAD_MUTEX_STALLED, shared);
	pthread_condattr_init(&a);
	pthread_condattr_setpshared(&a, shared);
	pthread_condattr_setclock(&a, clock);
	pthread_cond_init(&s->changed, &a);
	s->turn = 0;
	together(take_turns, shared);
	CHECK(s->turn == 10 * THREADS);
	clock_gettime(clock, &soon);
	soon.tv_nsec += 10000000;
	soon.tv_sec += soon.tv_nsec / 1000000000;
	soon.tv_nsec %= 1000000000;
	pthread_mutex_lock(&s->mutex);
	CHECK(pthread_cond_timedwait(&s->changed, &s->mutex, &soon) == ETIMEDOUT);
	pthread_mutex_unlock(&s->mutex);
	CHECK(pthread_cond_destroy(&s->changed) == 0);
}

static void *meet(void *argument)
{
	for (int i = 0; i < 20; i++) {
		s->most++;
		if (pthread_barrier_wait(&s->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			s->serial++;
		CHECK(s->most >= (i + 1) * THREADS);
		pthread_barrier_wait(&s->barrier);
	}
	return argument;
}

static void barriers(int shared)
{
	pthread_barrierattr_t a;

	pthread_barrierattr_init(&a);
	pthread_barrierattr_setpshared(&a, shared);
	pthread_barrier_init(&s->barrier, &a, THREADS);
	s->most = s->serial = 0;
	together(meet, shared);
	CHECK(s->serial == 20 && s->most == 20 * THREADS);
	CHECK(pthread_barrier_destroy(&s->barrier) == 0);
}

static void *produce_or_consume(void *argument)
{
	int produces = (long)argument % 2;

	for (int i = 0; i < 60; i++) {
		sem_wait(produces ? &s->free : &s->items);
		pthread_mutex_lock(&s->mutex);
		if (produces)
			s->slots[s->in++ % 4] = 1;
		else
			s->count += s->slots[s->out++ % 4];
		pthread_mutex_unlock(&s->mutex);
		sem_post(produces ? &s->items : &s->free);
	}
	return NULL;
}

static void semaphores(int shared)
{
	struct timespec soon = after(CLOCK_REALTIME, 10);
	int value;

	make(&s->mutex, PTHREAD_MUTEX_NORMAL, PTHREAD_PRIO_NONE, PTHREAD_MUTEX_STALLED, shared);
	sem_init(&s->items, shared, 0);
	sem_init(&s->free, shared, 4);
	s->count = s->in = s->out = 0;
	together(produce_or_consume, shared);
	CHECK(s->count == 60 * THREADS / 2);
	CHECK(sem_getvalue(&s->free, &value) == 0 && value == 4);
	FAILS(ETIMEDOUT, sem_timedwait(&s->items, &soon));
	FAILS(EAGAIN, sem_trywait(&s->items));
}

static void *read_or_write(void *argument)
{
	for (int i = 0; i < 60; i++) {
		if ((long)argument % 3 == 0) {
			pthread_rwlock_wrlock(&s->lock);
			CHECK(s->readers == 0);
			s->count++;
			pthread_rwlock_unlock(&s->lock);
		} else {
			pthread_rwlock_rdlock(&s->lock);
			s->readers++;
			sched_yield();
			s->readers--;
			pthread_rwlock_unlock(&s->lock);
		}
	}
	return NULL;
}

static void readers_and_writers(int shared)
{
	pthread_rwlockattr_t a;

	pthread_rwlockattr_init(&a);
	pthread_rwlockattr_setpshared(&a, shared);
	pthread_rwlock_init(&s->lock, &a);
	s->count = s->readers = 0;
	together(read_or_write, shared);
	CHECK(s->count == 60 * 2);
	CHECK(pthread_rwlock_destroy(&s->lock) == 0);
}

BEFORE_EACH
{
	s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(s != MAP_FAILED);
}

CASE(mutexes_exclude_threads)
{
	mutexes(PTHREAD_PRIO_NONE, 0);
}

CASE(inheriting_mutexes_exclude_threads)
{
	mutexes(PTHREAD_PRIO_INHERIT, 0);
}

CASE(mutexes_exclude_processes)
{
	mutexes(PTHREAD_PRIO_NONE, 1);
}

CASE(inheriting_mutexes_exclude_processes)
{
	mutexes(PTHREAD_PRIO_INHERIT, 1);
}

CASE(a_mutex_tells_that_its_thread_has_died)
{
	robust(PTHREAD_PRIO_NONE, 0);
}

CASE(an_inheriting_mutex_tells_that_its_thread_has_died)
{
	robust(PTHREAD_PRIO_INHERIT, 0);
}

CASE(threads_take_turns_by_a_condition)
{
	conditions(PTHREAD_PRIO_NONE, 0, CLOCK_REALTIME);
}

CASE(threads_take_turns_by_a_condition_of_an_inheriting_mutex)
{
	conditions(PTHREAD_PRIO_INHERIT, 0, CLOCK_MONOTONIC);
}

CASE(threads_meet_at_a_barrier)
{
	barriers(0);
}

CASE(threads_pass_items_by_semaphores)
{
	semaphores(0);
}

CASE(readers_and_writers_in_threads_exclude_each_other)
{
	readers_and_writers(0);
}

CASE(a_mutex_tells_that_its_process_has_died)
{
	robust(PTHREAD_PRIO_NONE, 1);
}

CASE(an_inheriting_mutex_tells_that_its_process_has_died)
{
	robust(PTHREAD_PRIO_INHERIT, 1);
}

CASE(processes_take_turns_by_a_condition)
{
	conditions(PTHREAD_PRIO_NONE, 1, CLOCK_REALTIME);
}

CASE(processes_take_turns_by_a_condition_of_an_inheriting_mutex)
{
	conditions(PTHREAD_PRIO_INHERIT, 1, CLOCK_MONOTONIC);
}

CASE(processes_meet_at_a_barrier)
{
	barriers(1);
}

CASE(processes_pass_items_by_semaphores)
{
	semaphores(1);
}

CASE(readers_and_writers_in_processes_exclude_each_other)
{
	readers_and_writers(1);
}
