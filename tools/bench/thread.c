// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Threads of the C library on one CPU. The new thread has its creator's SCHED_FIFO priority
 * and runs as soon as that waits for it.
 *
 *   thread-start  from before pthread_create to the first instruction of the thread
 *   thread-join   from before pthread_create until pthread_join has returned
 */
#include "threads.h"

static volatile uint64_t began;

static void *body(void *unused)
{
	began = ticks();
	return unused;
}

int main(int argc, char **argv)
{
	int whole;

	begin(argc, argv);
	whole = wants("thread-join");
	if (!whole && !wants("thread-start"))
		return unknown();
	set_priority(LOW);
	for (long round = -WARM_UP; round < options.samples; round++) {
		uint64_t before = ticks(), after;

		join(start(body));
		after = ticks();
		sample(round, (whole ? after : began) - before);
	}
	return report();
}
