/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Signal-driven I/O: a signal tells that a file is ready. */
#ifndef DRIVEN_H
#define DRIVEN_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

/* The signal that tells. */
#define TELLS (SIGRTMIN + 5)

/* Has this process be signalled when a file is ready; tells whether that works. */
static inline int drive(int fd)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, TELLS);
	return sigprocmask(SIG_BLOCK, &set, NULL) == 0 && fcntl(fd, F_SETOWN, getpid()) == 0 &&
	       fcntl(fd, F_SETSIG, TELLS) == 0 &&
	       fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC) == 0;
}

/*
 * Tells whether the signal comes within some seconds, and is about that descriptor and reason
 * (POLL_IN and the like). Further ones that have come by then are taken, too.
 */
static inline int is_driven(int fd, int reason)
{
	const struct timespec patience = { 20, 0 }, none = { 0, 0 };
	siginfo_t info, further;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, TELLS);
	if (sigtimedwait(&set, &info, &patience) != TELLS)
		return 0;
	while (sigtimedwait(&set, &further, &none) == TELLS)
		;
	return info.si_code == reason && info.si_fd == fd &&
	       info.si_band == (reason == POLL_IN ? POLLIN | POLLRDNORM :
				reason == POLL_OUT ? POLLOUT | POLLWRNORM | POLLWRBAND :
				POLLHUP | POLLERR);
}

#endif
