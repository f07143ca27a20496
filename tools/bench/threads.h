/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Threads with priorities. */
#ifndef THREADS_H
#define THREADS_H

#include "bench.h"

#include <pthread.h>

/* Priority of the thread that is measured, and of the one that provokes it. */
#define HIGH 81
#define LOW 80

/* Gives the calling thread a SCHED_FIFO priority. */
static inline void set_priority(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	if (sched_setscheduler(0, SCHED_FIFO, &param))
		fail("sched_setscheduler");
}

static inline pthread_t start(void *(*body)(void *))
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, body, NULL);
	if (errno)
		fail("pthread_create");
	return thread;
}

static inline void join(pthread_t thread)
{
	errno = pthread_join(thread, NULL);
	if (errno)
		fail("pthread_join");
}

static inline void sleep_ns(long ns)
{
	struct timespec time = { 0, ns };

	nanosleep(&time, NULL);
}

#endif
