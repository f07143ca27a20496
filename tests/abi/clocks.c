// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* Clocks go forward and agree; sleeps are never too short. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <time.h>

#include "check.h"

static int64_t now(clockid_t clock)
{
	struct timespec time;

	if (syscall(SYS_clock_gettime, clock, &time))
		return -1;
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(void)
{
	clockid_t clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW,
			       CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID };
	struct timespec request, rest;
	struct timeval day;
	struct rusage usage;
	struct tms tms;
	int64_t before, after, seconds, least = INT64_MAX;
	int forward = 1, enough = 1;

	for (unsigned int c = 0; c < sizeof(clocks) / sizeof(*clocks); c++) {
		before = now(clocks[c]);
		for (int i = 0; i < 20000; i++) {
			after = now(clocks[c]);
			forward &= after >= before && before >= 0;
			before = after;
		}
	}
	CHECK(forward);
	FAILS(EINVAL, now(12345) == -1 ? -1 : 0);
	/* The time of day lies between two readings of its clock; time(2) moves at ticks. */
	before = now(CLOCK_REALTIME);
	CHECK(syscall(SYS_gettimeofday, &day, NULL) == 0);
	seconds = syscall(SYS_time, NULL);
	after = now(CLOCK_REALTIME);
	CHECK(day.tv_sec * 1000000LL + day.tv_usec >= before / 1000 && day.tv_sec * 1000000LL + day.tv_usec <= after / 1000);
	CHECK(seconds >= before / 1000000000 - 1 && seconds <= after / 1000000000);
	CHECK(day.tv_sec > 1700000000);
	CHECK(llabs(now(CLOCK_TAI) - now(CLOCK_REALTIME)) < 60000000000LL);
	before = now(CLOCK_MONOTONIC);
	CHECK(now(CLOCK_BOOTTIME) >= before);
	CHECK(clock_getres(CLOCK_MONOTONIC, &rest) == 0 && rest.tv_sec == 0 && rest.tv_nsec == 1);

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
	/* What is past is no sleep. The host may take the processor away, but not each time. */
	request = (struct timespec){ 1, 0 };
	for (int i = 0; i < 10; i++) {
		before = now(CLOCK_MONOTONIC);
		enough &= clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &request, NULL) == 0;
		after = now(CLOCK_MONOTONIC) - before;
		least = after < least ? after : least;
	}
	CHECK(enough && least < 500000000);
	request = (struct timespec){ 0, 1000000000 };
	FAILS(EINVAL, nanosleep(&request, NULL));
	request = (struct timespec){ -1, 0 };
	FAILS(EINVAL, nanosleep(&request, NULL));
	FAILS(EFAULT, nanosleep((void *)8, NULL));

	/* A sleep is no work. */
	after = now(CLOCK_MONOTONIC);
	before = now(CLOCK_PROCESS_CPUTIME_ID);
	request = (struct timespec){ 0, 100000000 };
	nanosleep(&request, NULL);
	before = now(CLOCK_PROCESS_CPUTIME_ID) - before;
	CHECK(now(CLOCK_MONOTONIC) - after - before >= 99000000);
	before = now(CLOCK_PROCESS_CPUTIME_ID);
	while (now(CLOCK_PROCESS_CPUTIME_ID) - before < 30000000)
		;
	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	CHECK(usage.ru_utime.tv_sec * 1000000 + usage.ru_utime.tv_usec +
	      usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec > 20000);
	CHECK(times(&tms) != (clock_t)-1);
	FAILS(EINVAL, getrusage(99, &usage));
	return finish();
}
