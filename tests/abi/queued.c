// SPDX-License-Identifier: MIT OR Apache-2.0
/* Signals that are queued when their process ends take no room away from others. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"

/* Together more than the system keeps for all. */
#define CHILDREN 24
#define SIGNALS 2000

CASE(signals_queued_at_the_end_of_a_process_take_no_room)
{
	int first = SIGRTMIN, result, failed = 0;
	siginfo_t info;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, first);
	sigprocmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork();

		if (child == 0) {
			for (int k = 0; k < SIGNALS; k++)
				if (sigqueue(getpid(), first, (union sigval){ .sival_int = k }))
					_exit(1);
			_exit(0);
		}
		failed += waitpid(child, &result, 0) != child || result != 0;
	}
	CHECK(failed == 0);
	CHECK(sigqueue(getpid(), first, (union sigval){ .sival_int = 5 }) == 0);
	CHECK(sigwaitinfo(&set, &info) == first && info.si_value.sival_int == 5);
}
