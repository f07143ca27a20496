// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * futex-latency FILE wait ROUNDS: waits at a word of the file, and prints how long that takes in
 * ticks of the time stamp counter, which all CPUs share: median and most of so many rounds, from
 * before the other one's FUTEX_WAKE to behind FUTEX_WAIT.
 *
 * futex-latency FILE wake ROUNDS: wakes it each time, and prints what its own call takes.
 */
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "latency.h"

/* Nanoseconds until who is about to wait does so, in both realms. */
#define SETTLE 2000000

static struct shared {
	_Atomic uint32_t word;			/* 1: the waiter goes on */
	_Atomic uint32_t waiting, woken;	/* rounds, counted from 1 */
	_Atomic uint64_t before;
} *shared;

static void be_urgent(int priority)
{
	struct sched_param urgent = { .sched_priority = priority };

	if (mlockall(MCL_CURRENT | MCL_FUTURE) || sched_setscheduler(0, SCHED_FIFO, &urgent))
		fail("urgency");
}

static void sleep_for(long nanoseconds)
{
	nanosleep(&(struct timespec){ .tv_nsec = nanoseconds }, NULL);
}

static uint64_t wait_for(uint32_t round)
{
	uint64_t after;

	atomic_store(&shared->waiting, round);
	while (!atomic_load(&shared->word))
		syscall(SYS_futex, &shared->word, FUTEX_WAIT, 0, NULL, NULL, 0);
	after = tsc();
	atomic_store(&shared->word, 0);
	atomic_store(&shared->woken, round);
	return after - atomic_load(&shared->before);
}

static uint64_t wake(uint32_t round)
{
	uint64_t before, after;

	while (atomic_load(&shared->waiting) != round)
		sleep_for(SETTLE / 10);
	sleep_for(SETTLE);
	before = tsc();
	atomic_store(&shared->before, before);
	atomic_store(&shared->word, 1);
	syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, NULL, NULL, 0);
	after = tsc();
	while (atomic_load(&shared->woken) != round)
		sleep_for(SETTLE / 10);
	return after - before;
}

int main(int argc, char **argv)
{
	int fd = argc == 4 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
	int waits = argc == 4 && !strcmp(argv[2], "wait");
	uint64_t *ticks;

	if (fd < 0 || ftruncate(fd, sizeof(*shared)))
		fail("futex-latency FILE wait|wake ROUNDS");
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		fail("mmap");
	rounds = atoi(argv[3]);
	ticks = calloc(rounds, sizeof(*ticks));
	/* On one CPU the waiter runs at once. */
	be_urgent(waits ? 80 : 50);
	/* The first rounds have what is made once. */
	for (int round = -2; round < rounds; round++) {
		uint64_t took = waits ? wait_for(round + 3) : wake(round + 3);

		if (round >= 0)
			ticks[round] = took;
	}
	sort(ticks);
	printf("%lu %lu\n", ticks[rounds / 2], ticks[rounds - 1]);
	return 0;
}
