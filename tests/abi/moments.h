/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Moments of a clock, and waiting for them. */
#ifndef MOMENTS_H
#define MOMENTS_H

#include <time.h>

static inline void pause_for(long milliseconds)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000 };

	nanosleep(&time, NULL);
}

/* The time of a clock, so many milliseconds from now. */
static inline struct timespec after(clockid_t clock, long milliseconds)
{
	struct timespec time;

	clock_gettime(clock, &time);
	time.tv_nsec += milliseconds % 1000 * 1000000;
	time.tv_sec += milliseconds / 1000 + time.tv_nsec / 1000000000;
	time.tv_nsec %= 1000000000;
	return time;
}

#endif
