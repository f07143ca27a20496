// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Threads and children open, close, replace, add and wait for the same descriptors at once. Every
 * call returns.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "check.h"

#define THREADS 4
#define ROUNDS 600

/* A descriptor that may be in use. */
static int any(unsigned *seed)
{
	return 3 + rand_r(seed) % 20;
}

/* Makes a call of a random kind. Nothing that is made here blocks. */
static void step(unsigned *seed)
{
	int fd = any(seed), other = any(seed), pair[2];
	struct epoll_event wanted = { EPOLLIN | EPOLLOUT, { .fd = other } }, reported[4];
	struct pollfd polled[2] = { { fd, POLLIN, 0 }, { other, POLLOUT, 0 } };
	struct itimerspec soon = { { 0, rand_r(seed) % 1000000 }, { 0, rand_r(seed) % 100000 } };
	uint64_t one = 1;

	if (rand_r(seed) % 3 == 0)
		wanted.events |= EPOLLET;
	if (rand_r(seed) % 4 == 0)
		wanted.events |= EPOLLONESHOT;
	switch (rand_r(seed) % 12) {
	case 0:
		epoll_create1(EPOLL_CLOEXEC);
		break;
	case 1:
		eventfd(1, EFD_NONBLOCK);
		break;
	case 2:
		if (pipe2(pair, O_NONBLOCK))
			break;
		break;
	case 3:
		timerfd_settime(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), 0, &soon, NULL);
		break;
	case 4:
		if (rand_r(seed) % 4 == 0)
			socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair);
		break;
	case 5:
	case 6:
		epoll_ctl(fd, 1 + rand_r(seed) % 3, other, &wanted);
		break;
	case 7:
		epoll_wait(fd, reported, 4, rand_r(seed) % 2);
		break;
	case 8:
		close(fd);
		break;
	case 9:
		if (write(fd, &one, 8) < 0 || read(other, &one, 8) < 0)
			break;
		break;
	case 10:
		dup2(fd, other);
		break;
	case 11:
		poll(polled, 2, rand_r(seed) % 2);
		break;
	}
}

static void *work(void *number)
{
	unsigned seed = (unsigned)(uintptr_t)number;

	for (int round = 0; round < ROUNDS; round++) {
		step(&seed);
		if (round % 150 != 100)
			continue;
		pid_t child = fork();

		if (child == 0) {
			for (int i = 0; i < 20; i++)
				step(&seed);
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
	return NULL;
}

static volatile int done;

/* Closes again and again whatever the process has there. */
static void *close_always(void *unused)
{
	(void)unused;
	while (!done)
		for (int fd = 3; fd < 10; fd++)
			close(fd);
	return NULL;
}

BEFORE_EACH
{
	syscall(SYS_close_range, 3, ~0U, 0);
	signal(SIGPIPE, SIG_IGN);
}

/* Files that are made afterwards work. */
CASE(threads_and_children_use_the_same_numbers)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);

	struct epoll_event found[8];
	int set = epoll_create1(0), event = eventfd(1, 0);
	struct epoll_event wanted = { EPOLLIN, { .fd = event } };

	CHECK(set == 3 && event == 4 && epoll_ctl(set, EPOLL_CTL_ADD, event, &wanted) == 0);
	CHECK(epoll_wait(set, found, 8, -1) == 1 && found[0].data.fd == event);
}

CASE(forks_go_on_while_numbers_are_closed)
{
	int right = 1, status;
	pthread_t thread;

	pthread_create(&thread, NULL, close_always, NULL);
	for (int i = 0; i < 60 && right; i++) {
		pid_t child = fork();

		if (child == 0)
			_exit(i);
		right = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
			WEXITSTATUS(status) == i;
	}
	done = 1;
	pthread_join(thread, NULL);
	CHECK(right);
}
