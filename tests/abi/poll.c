// SPDX-License-Identifier: MIT OR Apache-2.0
/* poll and select, over files of both realms at once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

/* An address that the compiler does not know. */
static void *at(long address)
{
	volatile long hidden = address;

	return (void *)hidden;
}

static volatile int caught;

static void note(int signal)
{
	caught = signal;
}

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int ends[2], pair[2], event, null;

static pid_t later(int fd, const void *data, int length)
{
	pid_t child = fork();

	if (child == 0) {
		usleep(60000);
		_exit(write(fd, data, length) == length ? 0 : 1);
	}
	return child;
}

static int joined(pid_t child)
{
	int status;

	return waitpid(child, &status, 0) == child && status == 0;
}

static void polls(void)
{
	struct pollfd set[4] = { { ends[0], POLLIN, 0 }, { pair[0], POLLIN, 0 }, { event, POLLIN, 0 }, { -1, POLLIN, 7 } };
	uint64_t one = 1;
	char byte;
	long before;

	CHECK(poll(set, 4, 0) == 0 && set[0].revents == 0 && set[3].revents == 0);
	before = now();
	CHECK(poll(set, 4, 50) == 0 && now() - before >= 49);
	CHECK(poll(set, 1, 20) == 0 && poll(set + 1, 1, 20) == 0 && poll(NULL, 0, 10) == 0);
	/* Each of them ends the wait of all. */
	pid_t child = later(ends[1], "a", 1);

	CHECK(poll(set, 4, 5000) == 1 && set[0].revents == POLLIN && set[1].revents == 0 && joined(child));
	CHECK(read(ends[0], &byte, 1) == 1);
	child = later(pair[1], "b", 1);
	CHECK(poll(set, 4, -1) == 1 && set[1].revents == POLLIN && set[0].revents == 0 && joined(child));
	child = later(event, &one, 8);
	CHECK(joined(child) && poll(set, 4, -1) == 2 && set[1].revents == POLLIN && set[2].revents == POLLIN);
	CHECK(read(event, &one, 8) == 8 && read(pair[0], &byte, 1) == 1);
	child = later(event, &one, 8);
	CHECK(poll(set, 4, -1) == 1 && set[2].revents == POLLIN && joined(child) && read(event, &one, 8) == 8);
	/* Ready at once, writers, what is always ready, what is not there. */
	struct pollfd other[5] = { { ends[1], POLLOUT | POLLIN, 0 }, { pair[0], POLLOUT, 0 }, { null, POLLIN | POLLOUT, 0 }, { 77, POLLIN, 0 }, { event, POLLIN | POLLOUT, 0 } };

	CHECK(poll(other, 5, 1000) == 5 && other[0].revents == POLLOUT && other[1].revents == POLLOUT);
	CHECK(other[2].revents == (POLLIN | POLLOUT) && other[3].revents == POLLNVAL && other[4].revents == POLLOUT);
	CHECK(poll(other + 3, 1, 1000) == 1 && other[3].revents == POLLNVAL);
	/* The same one twice. */
	set[1] = set[0];
	CHECK(write(ends[1], "c", 1) == 1 && poll(set, 2, -1) == 2 && set[1].revents == POLLIN && read(ends[0], &byte, 1) == 1);
	FAILS(EFAULT, poll(at(16), 1, 0));
	FAILS(EINVAL, syscall(SYS_poll, set, 1u << 30, 0));
}

static void interrupted(void)
{
	struct pollfd set[2] = { { ends[0], POLLIN, 0 }, { pair[0], POLLIN, 0 } };
	struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
	struct timespec time = { 0, 40000000 };
	sigset_t blocked, none, old;

	sigaction(SIGALRM, &action, NULL);
	/* Again and again: the first may come before the wait begins. */
	ualarm(30000, 30000);
	FAILS(EINTR, poll(set, 1, 5000));
	caught = 0;
	FAILS(EINTR, poll(set, 2, 5000));
	CHECK(caught == SIGALRM);
	ualarm(0, 0);
	/* ppoll opens the mask while it waits. */
	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGALRM);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	caught = 0;
	CHECK(ppoll(set, 2, &time, NULL) == 0 && ppoll(set, 1, &time, &none) == 0);
	ualarm(30000, 0);
	FAILS(EINTR, ppoll(set, 1, NULL, &none));
	CHECK(caught == SIGALRM);
	caught = 0;
	ualarm(30000, 0);
	usleep(60000);
	CHECK(caught == 0);
	FAILS(EINTR, ppoll(set, 2, NULL, &none));
	CHECK(caught == SIGALRM && sigprocmask(SIG_BLOCK, NULL, &old) == 0 && sigismember(&old, SIGALRM));
	FAILS(EINVAL, syscall(SYS_ppoll, set, 1, NULL, &none, 4));
	time.tv_nsec = 2000000000;
	FAILS(EINVAL, ppoll(set, 1, &time, NULL));
	sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

static void selects(void)
{
	fd_set in, out, except;
	struct timeval time = { 0, 30000 };
	char byte;

	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_ZERO(&except);
	FD_SET(ends[0], &in);
	FD_SET(pair[0], &in);
	CHECK(select(pair[1] + 1, &in, NULL, NULL, &time) == 0 && !FD_ISSET(ends[0], &in) && !FD_ISSET(pair[0], &in));
	CHECK(time.tv_sec == 0 && time.tv_usec == 0);
	FD_SET(ends[0], &in);
	FD_SET(ends[1], &out);
	FD_SET(pair[0], &in);
	FD_SET(pair[0], &out);
	FD_SET(event, &except);
	CHECK(select(100, &in, &out, &except, NULL) == 2 && FD_ISSET(ends[1], &out) && FD_ISSET(pair[0], &out));
	CHECK(!FD_ISSET(ends[0], &in) && !FD_ISSET(pair[0], &in) && !FD_ISSET(event, &except));
	FD_SET(ends[0], &in);
	FD_SET(pair[0], &in);
	pid_t child = later(ends[1], "x", 1);

	CHECK(select(100, &in, NULL, NULL, NULL) == 1 && FD_ISSET(ends[0], &in) && !FD_ISSET(pair[0], &in));
	CHECK(read(ends[0], &byte, 1) == 1 && joined(child));
	FD_SET(pair[0], &in);
	child = later(pair[1], "x", 1);
	CHECK(select(100, &in, NULL, NULL, NULL) == 1 && FD_ISSET(pair[0], &in) && !FD_ISSET(ends[0], &in));
	CHECK(read(pair[0], &byte, 1) == 1 && joined(child));
	FD_SET(50, &in);
	FD_SET(ends[0], &in);
	FAILS(EBADF, select(100, &in, NULL, NULL, NULL));
	FAILS(EINVAL, select(-1, &in, NULL, NULL, NULL));
	time.tv_usec = -1;
	FAILS(EINVAL, select(100, NULL, NULL, NULL, &time));
	struct timespec span = { 0, 20000000 };

	FD_ZERO(&in);
	FD_SET(ends[0], &in);
	CHECK(pselect(100, &in, NULL, NULL, &span, NULL) == 0);
}

int main(void)
{
	uint64_t value;

	CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	event = eventfd(0, 0);
	null = open("/dev/null", O_RDWR);
	polls();
	interrupted();
	selects();
	/* Many wake-ups between two processes. */
	int right = 1, status;
	pid_t child = fork();

	if (child == 0) {
		for (int i = 0; i < 200; i++) {
			struct pollfd set[2] = { { ends[0], POLLIN, 0 }, { pair[0], POLLIN, 0 } };
			char byte;

			if (poll(set, 1 + i % 2, 5000) != 1 || read(ends[0], &byte, 1) != 1)
				_exit(1);
			value = 1;
			write(event, &value, 8);
		}
		_exit(0);
	}
	for (int i = 0; i < 200; i++)
		right &= write(ends[1], "x", 1) == 1 && read(event, &value, 8) == 8 && value == 1;
	CHECK(right && waitpid(child, &status, 0) == child && status == 0);
	return finish();
}
