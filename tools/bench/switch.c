// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Two parties of one SCHED_FIFO priority on one CPU hand it to each other with
 * sched_yield. A sample is half of the time from one party's yield until it runs
 * again: one system call and one switch.
 *
 *   switch-process  two processes, so the address space changes
 *   switch-thread   two threads of one process
 */
#include "threads.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int over;

static void *yielder(void *unused)
{
	while (!atomic_load(&over))
		sched_yield();
	return unused;
}

static void measure(void)
{
	/* Let the other party begin. */
	sleep_ns(1000000);
	for (long round = -WARM_UP; round < options.samples; round++) {
		uint64_t before = ticks();

		sched_yield();
		sample(round, (ticks() - before) / 2);
	}
}

int main(int argc, char **argv)
{
	begin(argc, argv);
	set_priority(LOW);
	if (wants("switch-process")) {
		pid_t child = fork();

		if (child < 0)
			fail("fork");
		if (!child) {
			/* A child does not inherit locked memory. */
			mlockall(MCL_CURRENT);
			yielder(NULL);
		}
		measure();
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	} else if (wants("switch-thread")) {
		pthread_t thread = start(yielder);

		measure();
		atomic_store(&over, 1);
		join(thread);
	} else {
		return unknown();
	}
	return report();
}
