// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A signal to the calling thread itself, by tgkill.
 *
 *   signal         from before the call to the first instruction of the handler
 *   signal-return  from before the call until it has returned, the handler included
 */
#include "bench.h"

#include <signal.h>

static volatile uint64_t arrived;

static void handler(int number)
{
	(void)number;
	arrived = ticks();
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = handler };
	pid_t pid;
	int whole;

	begin(argc, argv);
	whole = wants("signal-return");
	if (!whole && !wants("signal"))
		return unknown();
	if (sigaction(SIGUSR1, &action, NULL))
		fail("sigaction");
	pid = getpid();
	for (long round = -WARM_UP; round < options.samples; round++) {
		uint64_t before = ticks(), after;

		arrived = 0;
		if (syscall(SYS_tgkill, pid, pid, SIGUSR1))
			fail("tgkill");
		after = ticks();
		if (!arrived) {
			errno = ENOMSG;
			fail("the handler did not run before tgkill returned");
		}
		sample(round, (whole ? after : arrived) - before);
	}
	return report();
}
