/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For programs in which an urgent thread waits for what a less urgent one causes on the same CPU,
 * and counts the ticks in between.
 */
#ifndef LATENCY_H
#define LATENCY_H

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static int rounds;
static volatile uint64_t start;
/* The urgent thread is about to wait. */
static sem_t next;

static inline uint64_t tsc(void)
{
	uint32_t low, high;

	asm volatile("lfence; rdtsc" : "=a"(low), "=d"(high) :: "memory");
	return (uint64_t)high << 32 | low;
}

static inline void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static inline void sort(uint64_t *ticks)
{
	qsort(ticks, rounds, sizeof(*ticks), compare);
}

/* Makes the caller urgent, and starts the other thread. */
static inline pthread_t start_other(void *(*causes)(void *))
{
	struct sched_param urgent = { .sched_priority = 80 }, other = { .sched_priority = 50 };
	pthread_attr_t attributes;
	pthread_t thread;

	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		fail("memory");
	if (sched_setscheduler(0, SCHED_FIFO, &urgent))
		fail("policy");
	sem_init(&next, 0, 0);
	pthread_attr_init(&attributes);
	pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
	pthread_attr_setschedpolicy(&attributes, SCHED_FIFO);
	pthread_attr_setschedparam(&attributes, &other);
	if (pthread_create(&thread, &attributes, causes, NULL))
		fail("thread");
	return thread;
}

#endif
