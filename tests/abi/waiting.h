/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* For tests of files that are waited for. */
#ifndef WAITING_H
#define WAITING_H

#include <poll.h>

/* The last signal that note() was called for. */
static volatile int caught;

static inline void note(int signal)
{
	caught = signal;
}

/* Which of the events a descriptor has, after waiting for so many milliseconds at most. */
static inline int ready(int fd, short events, int milliseconds)
{
	struct pollfd polled = { fd, events, 0 };

	return poll(&polled, 1, milliseconds) == 1 ? polled.revents : 0;
}

#endif
