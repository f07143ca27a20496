// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A byte goes through a pipe to another process, which sends one back through a
 * second pipe. A sample is the round trip.
 *
 *   pipe         both processes on one CPU
 *   pipe-across  the other one on another CPU
 */
#include "threads.h"

#include <sys/wait.h>

static void move(int from, int to)
{
	char byte;

	if (read(from, &byte, 1) != 1 || write(to, &byte, 1) != 1)
		_exit(1);
}

int main(int argc, char **argv)
{
	int there[2], back[2];
	char byte = 'x';
	pid_t child;

	begin(argc, argv);
	if (!wants("pipe") && !wants("pipe-across"))
		return unknown();
	set_priority(LOW);
	if (pipe(there) || pipe(back))
		fail("pipe");
	child = fork();
	if (child < 0)
		fail("fork");
	if (!child) {
		mlockall(MCL_CURRENT);
		if (wants("pipe-across"))
			pin(options.other);
		for (long round = -WARM_UP; round < options.samples; round++)
			move(there[0], back[1]);
		_exit(0);
	}
	for (long round = -WARM_UP; round < options.samples; round++) {
		uint64_t before = ticks();

		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1)
			fail("write and read");
		sample(round, ticks() - before);
	}
	waitpid(child, NULL, 0);
	return report();
}
