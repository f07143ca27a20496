/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the measuring programs share: a clock, a place for samples, one line of
 * JSON per figure.
 *
 * The same static executable runs under Linux and in the realm. The clock is the
 * time stamp counter, because reading it costs the same few instructions in
 * both and involves no kernel. A sample is the difference of two readings as it is:
 * nothing is subtracted. What the readings themselves cost is a figure of its
 * own, `overhead` of syscalls.c.
 *
 * In emulation with counted instructions the counter counts virtual
 * nanoseconds. On a real machine `ticks_per_us`, taken over the whole run,
 * converts.
 */
#ifndef BENCH_H
#define BENCH_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Rounds before the first sample: caches, branch predictors, pages, lazy set-up. */
#define WARM_UP 10
/* How long the two clocks are compared at least. */
#define LEAST_TIME_NS 20000000

/* What the command line says. */
static struct {
	const char *figure;	/* what to measure */
	long samples;		/* how many */
	int cpu;		/* where the program runs; -1: where it is */
	int other;		/* second CPU, for figures across CPUs */
	long interval;		/* microseconds between samples, where that has a meaning */
} options = { NULL, 1000, -1, -1, 1000 };

static uint64_t *bench_samples;
static long bench_count;
static uint64_t bench_start_ticks, bench_start_ns;

/* The clock. The fences keep what is measured between two readings. */
static inline uint64_t ticks(void)
{
	uint32_t low, high;

	__asm__ volatile("lfence\n\trdtsc\n\tlfence" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

static inline uint64_t nanoseconds(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* Ends the program with the reason. */
static inline void fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", options.figure ? options.figure : "bench", what,
		strerror(errno));
	exit(1);
}

/* Keeps the calling thread on a CPU. */
static inline void pin(int cpu)
{
	cpu_set_t set;

	if (cpu < 0)
		return;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		fail("sched_setaffinity");
}

/* Whether the command line asks for this figure. */
static inline int wants(const char *figure)
{
	return !strcmp(options.figure, figure);
}

/*
 * FIGURE [-n SAMPLES] [-c CPU] [-o OTHER_CPU] [-i INTERVAL_US]; memory is locked, samples have
 * room.
 */
static inline void begin(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "n:c:o:i:")) != -1) {
		switch (option) {
		case 'n':
			options.samples = atol(optarg);
			break;
		case 'c':
			options.cpu = atoi(optarg);
			break;
		case 'o':
			options.other = atoi(optarg);
			break;
		case 'i':
			options.interval = atol(optarg);
			break;
		default:
			exit(2);
		}
	}
	if (optind + 1 != argc || options.samples < 1 || options.interval < 1) {
		fprintf(stderr,
			"usage: %s [-n SAMPLES] [-c CPU] [-o OTHER_CPU] [-i INTERVAL_US] FIGURE\n",
			argv[0]);
		exit(2);
	}
	options.figure = argv[optind];
	bench_samples = calloc((size_t)options.samples, sizeof(*bench_samples));
	if (!bench_samples)
		fail("memory for the samples");
	/* Also touches it. */
	memset(bench_samples, 1, (size_t)options.samples * sizeof(*bench_samples));
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		fail("mlockall");
	pin(options.cpu);
	bench_start_ticks = ticks();
	bench_start_ns = nanoseconds(CLOCK_MONOTONIC);
}

/*
 * Takes the sample of a round. Rounds are numbered from -WARM_UP; those below 0
 * do not count. Written by one thread at a time.
 */
static inline void sample(long round, uint64_t value)
{
	if (round < 0 || round >= options.samples)
		return;
	bench_samples[round] = value;
	bench_count = round + 1;
}

static inline int bench_compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Prints the histogram: pairs of value and count, ascending; so many ticks are 1 us. */
static inline int report_in(double ticks_per_us)
{
	long i, next;

	qsort(bench_samples, (size_t)bench_count, sizeof(*bench_samples), bench_compare);
	printf("{\"figure\":\"%s\",\"ticks_per_us\":%.6f,\"histogram\":[", options.figure,
	       ticks_per_us);
	for (i = 0; i < bench_count; i = next) {
		for (next = i; next < bench_count && bench_samples[next] == bench_samples[i];)
			next++;
		printf("%s[%llu,%ld]", i ? "," : "", (unsigned long long)bench_samples[i],
		       next - i);
	}
	printf("]}\n");
	return fflush(stdout) ? 1 : 0;
}

/* Prints the histogram of samples that were taken with `ticks`. */
static inline int report(void)
{
	struct timespec pause = { 0, LEAST_TIME_NS };
	double ticks_taken, ns_taken;

	nanosleep(&pause, NULL);
	ticks_taken = (double)(ticks() - bench_start_ticks);
	ns_taken = (double)(nanoseconds(CLOCK_MONOTONIC) - bench_start_ns);
	return report_in(ticks_taken / ns_taken * 1000);
}

/* For a figure that the program does not know. */
static inline int unknown(void)
{
	fprintf(stderr, "there is no figure `%s` here\n", options.figure);
	return 2;
}

#endif
