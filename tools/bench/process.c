// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A child that ends at once, until the parent has waited for it.
 *
 *   fork-exit  fork, _exit in the child, waitpid
 *   fork-exec  fork, execve of this static program in the child, _exit at the start of
 *              its main, waitpid
 */
#include "bench.h"

#include <sys/wait.h>

/* The argument that makes the program end. */
#define NOTHING "nothing"

static char *const arguments[] = { "process", NOTHING, NULL };
static char *const environment[] = { NULL };

int main(int argc, char **argv)
{
	int executes;

	if (argc == 2 && !strcmp(argv[1], NOTHING))
		_exit(0);
	begin(argc, argv);
	executes = wants("fork-exec");
	if (!executes && !wants("fork-exit"))
		return unknown();
	for (long round = -WARM_UP; round < options.samples; round++) {
		uint64_t before = ticks();
		int status;
		pid_t child = fork();

		if (child < 0)
			fail("fork");
		if (!child) {
			if (executes)
				execve(argv[0], arguments, environment);
			_exit(executes);
		}
		if (waitpid(child, &status, 0) != child || status)
			fail("the child");
		sample(round, ticks() - before);
	}
	return report();
}
