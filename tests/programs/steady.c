// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Sleeps and wakes COUNT times, every PERIOD microseconds of CLOCK_MONOTONIC, and judges the clock
 * by the time stamp counter. With a CPU, a second thread reads the clock there all the time. Prints
 * the nanoseconds that the clock says it took, the ticks that it took, the most ticks between two
 * wake-ups, and how often the clock went back for a thread that knew a later time.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#define SECOND 1000000000L

static atomic_long latest, backwards;
static atomic_bool over;

static long nanoseconds(const struct timespec *time)
{
	return time->tv_sec * SECOND + time->tv_nsec;
}

/* Reads the clock, by the C library or by a system call, and compares with what all have seen. */
static long read_clock(int by_call)
{
	long seen = atomic_load(&latest), now;
	struct timespec time;

	if (by_call)
		syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
	else
		clock_gettime(CLOCK_MONOTONIC, &time);
	now = nanoseconds(&time);
	if (now < seen)
		atomic_fetch_add(&backwards, 1);
	while (seen < now && !atomic_compare_exchange_weak(&latest, &seen, now))
		;
	return now;
}

static void *read_on(void *cpu)
{
	int turn = 0;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(*(int *)cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set)) {
		perror("sched_setaffinity");
		exit(1);
	}
	while (!atomic_load(&over))
		read_clock(turn++ % 2);
	return NULL;
}

int main(int argc, char **argv)
{
	long period, count, deadline, start, end;
	unsigned long first, last, now, most = 0;
	int cpu = argc == 4 ? atoi(argv[3]) : -1;
	pthread_t thread;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: steady PERIOD_US COUNT [CPU]\n");
		return 2;
	}
	period = atol(argv[1]) * 1000;
	count = atol(argv[2]);
	if (cpu >= 0 && pthread_create(&thread, NULL, read_on, &cpu))
		return 1;
	start = deadline = read_clock(0);
	first = last = __rdtsc();
	for (long i = 0; i < count; i++) {
		struct timespec time;

		deadline += period;
		time.tv_sec = deadline / SECOND;
		time.tv_nsec = deadline % SECOND;
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL))
			return 1;
		now = __rdtsc();
		if (now - last > most)
			most = now - last;
		last = now;
		read_clock(i % 2);
	}
	end = read_clock(0);
	last = __rdtsc();
	atomic_store(&over, 1);
	if (cpu >= 0)
		pthread_join(thread, NULL);
	printf("%ld %lu %lu %ld\n", end - start, last - first, most, atomic_load(&backwards));
	return 0;
}
