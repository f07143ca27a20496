// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What system calls cost: for each, the least, median and most of many calls in
 * ticks of the time stamp counter, from the instruction before SYSCALL to the one
 * behind it; the cost of reading the counter is taken off.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CALLS 1001

static uint64_t tsc(void)
{
	uint32_t low, high;

	asm volatile("lfence; rdtsc" : "=a"(low), "=d"(high) :: "memory");
	return (uint64_t)high << 32 | low;
}

static long call(long nr, long a, long b, long c)
{
	asm volatile("syscall" : "+a"(nr) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return nr;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t ticks[CALLS];

static void measure(const char *name, long nr, long a, long b, long c)
{
	uint64_t start, none = UINT64_MAX;
	long result = 0;
	int i;

	for (i = 0; i < 100; i++) {
		start = tsc();
		ticks[0] = tsc() - start;
		if (ticks[0] < none)
			none = ticks[0];
	}
	for (i = -10; i < CALLS; i++) {
		start = tsc();
		result = call(nr, a, b, c);
		ticks[i < 0 ? 0 : i] = tsc() - start - none;
	}
	qsort(ticks, CALLS, sizeof(*ticks), compare);
	printf("%s %lu %lu %lu %s\n", name, ticks[0], ticks[CALLS / 2], ticks[CALLS - 1],
	       result < 0 ? strerror(-result) : "ok");
}

int main(void)
{
	int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
	struct timespec time;
	char byte = 0;

	measure("getpid", SYS_getpid, 0, 0, 0);
	measure("gettid", SYS_gettid, 0, 0, 0);
	measure("clock_gettime", SYS_clock_gettime, CLOCK_MONOTONIC, (long)&time, 0);
	measure("sched_yield", SYS_sched_yield, 0, 0, 0);
	measure("read", SYS_read, zero, (long)&byte, 1);
	measure("write", SYS_write, null, (long)&byte, 1);
	measure("getppid", SYS_getppid, 0, 0, 0);
	return 0;
}
