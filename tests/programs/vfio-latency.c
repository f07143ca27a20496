// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * vfio-latency ROUNDS [PAUSE]
 *
 * How long it takes from a message of QEMU's device edu, by VFIO, to the instruction behind the
 * `read` of an eventfd: the PCI function is the one that the variable FUNCTION names. A thread that
 * is less urgent than the reader raises it, so that the interrupt follows the instruction at which
 * the time begins.
 *
 * It prints the median and the maximum of so many rounds in ticks of the time stamp counter,
 * without the store that raises the interrupt; and when it began with them and ended
 * (CLOCK_MONOTONIC, in nanoseconds). It sleeps for PAUSE seconds before and afterwards.
 */
#define _GNU_SOURCE
#include <time.h>

#include "../abi/vfio.h"
#include "latency.h"

#define STORES 1001
#define WARM_UP 20

static struct edu edu;
static struct timespec rest;
static long begun;
static uint64_t stores[STORES];

static long nanoseconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *raises(void *unused)
{
	(void)unused;
	for (int i = -WARM_UP; i < rounds; i++) {
		struct timespec pause = { 0, 500000 };

		while (sem_wait(&next))
			;
		/* The reader waits by now. */
		nanosleep(&pause, NULL);
		if (i == 0) {
			nanosleep(&rest, NULL);
			begun = nanoseconds();
		}
		start = tsc();
		put(&edu, RAISE, 1);
	}
	/* The end of a thread is Linux's to hear. */
	nanosleep(&rest, NULL);
	return NULL;
}

int main(int argc, char **argv)
{
	int event = eventfd(0, EFD_CLOEXEC);
	pthread_t thread;
	uint64_t *ticks, count;
	cpu_set_t cpu;
	long end;

	rounds = argc > 1 ? atoi(argv[1]) : 0;
	rest.tv_sec = argc > 2 ? atoi(argv[2]) : 0;
	ticks = rounds > 0 ? calloc(rounds, sizeof(*ticks)) : NULL;
	if (!ticks)
		return 2;
	CPU_ZERO(&cpu);
	CPU_SET(sched_getcpu(), &cpu);
	sched_setaffinity(0, sizeof(cpu), &cpu);
	if (open_edu(&edu, VFIO_TYPE1v2_IOMMU) || hear(&edu, VFIO_PCI_MSI_IRQ_INDEX, event))
		fail("edu");
	thread = start_other(raises);
	for (int i = 0; i < STORES; i++) {
		uint64_t before = tsc();

		put(&edu, LIVENESS, 1);
		stores[i] = tsc() - before;
	}
	qsort(stores, STORES, sizeof(*stores), compare);
	for (int i = -WARM_UP; i < rounds; i++) {
		sem_post(&next);
		if (read(event, &count, sizeof(count)) != sizeof(count))
			fail("read");
		if (i >= 0)
			ticks[i] = tsc() - start - stores[STORES / 2];
		if (count != 1) {
			fprintf(stderr, "%lu interrupts in round %d\n", count, i);
			return 1;
		}
		put(&edu, ACKNOWLEDGE, 1);
	}
	end = nanoseconds();
	pthread_join(thread, NULL);
	sort(ticks);
	printf("%lu %lu %ld %ld\n", ticks[rounds / 2], ticks[rounds - 1], begun, end);
	return 0;
}
