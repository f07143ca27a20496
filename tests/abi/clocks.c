// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* Clocks go forward and agree. Sleeps are never too short. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

#include "check.h"

/* What a clock shows, in nanoseconds, or -1. By the system call itself, not by the vDSO. */
static int64_t now(clockid_t clock)
{
	struct timespec time;

	if (syscall(SYS_clock_gettime, clock, &time))
		return -1;
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

CASE(no_clock_goes_backwards)
{
	clockid_t clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW,
			       CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID };
	int64_t before, after;
	int forward = 1;

	for (unsigned int c = 0; c < sizeof(clocks) / sizeof(*clocks); c++) {
		before = now(clocks[c]);
		for (int i = 0; i < 20000; i++) {
			after = now(clocks[c]);
			forward &= after >= before && before >= 0;
			before = after;
		}
	}
	CHECK(forward);
}

CASE(an_unknown_clock_is_refused)
{
	FAILS(EINVAL, now(12345) == -1 ? -1 : 0);
}

/* The time of day lies between two readings of its clock. time(2) moves at ticks. */
CASE(gettimeofday_and_time_agree_with_the_clock)
{
	struct timeval day;
	int64_t before, after, seconds;

	before = now(CLOCK_REALTIME);
	CHECK(syscall(SYS_gettimeofday, &day, NULL) == 0);
	seconds = syscall(SYS_time, NULL);
	after = now(CLOCK_REALTIME);
	CHECK(day.tv_sec * 1000000LL + day.tv_usec >= before / 1000 &&
	      day.tv_sec * 1000000LL + day.tv_usec <= after / 1000);
	CHECK(seconds >= before / 1000000000 - 1 && seconds <= after / 1000000000);
	CHECK(day.tv_sec > 1700000000);
}

CASE(tai_is_near_the_time_of_day)
{
	CHECK(llabs(now(CLOCK_TAI) - now(CLOCK_REALTIME)) < 60000000000LL);
}

CASE(boottime_is_not_behind_monotonic)
{
	int64_t before;

	before = now(CLOCK_MONOTONIC);
	CHECK(now(CLOCK_BOOTTIME) >= before);
}

CASE(the_resolution_is_a_nanosecond)
{
	struct timespec rest;

	CHECK(clock_getres(CLOCK_MONOTONIC, &rest) == 0 && rest.tv_sec == 0 && rest.tv_nsec == 1);
}

CASE(no_sleep_is_too_short)
{
	struct timespec request;
	int64_t before;
	int enough = 1;

	for (int i = 1; i <= 20; i++) {
		request = (struct timespec){ 0, i * 100000 };
		before = now(CLOCK_MONOTONIC);
		nanosleep(&request, NULL);
		enough &= now(CLOCK_MONOTONIC) - before >= request.tv_nsec;
		before = now(CLOCK_REALTIME) + 1000000;
		request = (struct timespec){ before / 1000000000, before % 1000000000 };
		clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &request, NULL);
		enough &= now(CLOCK_REALTIME) >= before;
	}
	CHECK(enough);
}

/* The host may take the processor away in some rounds, but not in all. */
CASE(a_sleep_until_a_past_time_ends_at_once)
{
	struct timespec request;
	int64_t before, after, least = INT64_MAX;
	int enough = 1;

	request = (struct timespec){ 1, 0 };
	for (int i = 0; i < 10; i++) {
		before = now(CLOCK_MONOTONIC);
		enough &= clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &request, NULL) == 0;
		after = now(CLOCK_MONOTONIC) - before;
		least = after < least ? after : least;
	}
	CHECK(enough && least < 500000000);
}

CASE(bad_sleeps_are_refused)
{
	struct timespec request;

	request = (struct timespec){ 0, 1000000000 };
	FAILS(EINVAL, nanosleep(&request, NULL));
	request = (struct timespec){ -1, 0 };
	FAILS(EINVAL, nanosleep(&request, NULL));
	FAILS(EFAULT, nanosleep((void *)8, NULL));
}

CASE(a_sleep_is_no_work)
{
	struct timespec request;
	int64_t before, after;

	after = now(CLOCK_MONOTONIC);
	before = now(CLOCK_PROCESS_CPUTIME_ID);
	request = (struct timespec){ 0, 100000000 };
	nanosleep(&request, NULL);
	before = now(CLOCK_PROCESS_CPUTIME_ID) - before;
	CHECK(now(CLOCK_MONOTONIC) - after - before >= 99000000);
}

CASE(usage_counts_work)
{
	struct rusage usage;
	int64_t before;

	before = now(CLOCK_PROCESS_CPUTIME_ID);
	while (now(CLOCK_PROCESS_CPUTIME_ID) - before < 30000000)
		;
	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	CHECK(usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec +
	      usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec > 20000);
}

CASE(times_tells_ticks)
{
	struct tms tms;

	CHECK(times(&tms) != (clock_t)-1);
}

CASE(unknown_usage_is_refused)
{
	struct rusage usage;

	FAILS(EINVAL, getrusage(99, &usage));
}
