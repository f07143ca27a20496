// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Measures how long the first access to each page of a program takes, before its thread is
 * real-time and after. Prints the longest of constants before, of constants after, and of variables
 * after, in ticks of the time stamp counter.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <x86intrin.h>

#define PAGE 4096
/* Constants are so large that they are read when they are touched. */
#define SIZE (3 << 20)
#define VARIABLES (64 * PAGE)

static const volatile char early[SIZE] = { 1 };
static const volatile char late[SIZE] = { 1 };
static volatile char variables[VARIABLES] = { 1 };

/*
 * The longest access to one of the pages. The first and the last are left out: they may lie in
 * pages that were used.
 */
#define LONGEST(LENGTH, ACCESS)									\
	({											\
		uint64_t longest = 0;								\
		for (unsigned at = PAGE; at < (LENGTH) - PAGE; at += PAGE) {			\
			uint64_t start = __rdtsc(), took;					\
			(void)(ACCESS);								\
			took = __rdtsc() - start;						\
			longest = took > longest ? took : longest;				\
		}										\
		longest;									\
	})

int main(void)
{
	const struct sched_param highest = { .sched_priority = 80 };
	unsigned long long before, constants, changed;

	before = LONGEST(SIZE, early[at]);
	if (sched_setscheduler(0, SCHED_FIFO, &highest)) {
		perror("sched_setscheduler");
		return 1;
	}
	constants = LONGEST(SIZE, late[at]);
	changed = LONGEST(VARIABLES, variables[at]++);
	printf("%llu %llu %llu\n", before, constants, changed);
	return 0;
}
