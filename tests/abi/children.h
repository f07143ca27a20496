/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* How children end. */
#ifndef CHILDREN_H
#define CHILDREN_H

#include <errno.h>
#include <sys/wait.h>

/* Waits for a child and returns its wait status, or -1 if there is no such child. */
static inline int status_of(pid_t child)
{
	int status = -1;

	while (waitpid(child, &status, 0) == -1)
		if (errno != EINTR)
			return -1;
	return status;
}

/* Waits for a child; tells whether it has ended with this exit status. */
static inline int exits_with(pid_t child, int status)
{
	int found = status_of(child);

	return WIFEXITED(found) && WEXITSTATUS(found) == status;
}

/* Waits for a child; tells whether this signal has ended it. */
static inline int ends_by(pid_t child, int signal)
{
	int found = status_of(child);

	return WIFSIGNALED(found) && WTERMSIG(found) == signal;
}

#endif
