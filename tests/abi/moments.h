/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Moments of a clock, and waiting for them. */
#ifndef MOMENTS_H
#define MOMENTS_H

#include <time.h>

/* What a clock shows, in nanoseconds. */
static inline long shown(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* The time on the clock that no one sets, in milliseconds. */
static inline long milliseconds(void)
{
	return shown(CLOCK_MONOTONIC) / 1000000;
}

static inline long nanoseconds(struct timespec time)
{
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* The time of so many nanoseconds. */
static inline struct timespec timespec(long nanoseconds)
{
	return (struct timespec){ nanoseconds / 1000000000, nanoseconds % 1000000000 };
}

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
