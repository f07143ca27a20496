// SPDX-License-Identifier: MIT OR Apache-2.0
/* epoll over pipes, eventfds and sockets that are made after the set. */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "check.h"

int main(void)
{
	int set = epoll_create1(EPOLL_CLOEXEC), ends[2], pair[2], event = -1, status;
	struct epoll_event wanted = { EPOLLIN, { .u32 = 1 } }, found[4];
	uint64_t one = 1;
	char byte;

	CHECK(set >= 0 && pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && (event = eventfd(0, 0)) >= 0);
	CHECK(ends[0] == set + 1 && ends[1] == set + 2 && pair[0] == set + 3 && event == set + 5);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &wanted) == 0);
	wanted.data.u32 = 2;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, event, &wanted) == 0);
	wanted.data.u32 = 3;
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &wanted) == 0);
	FAILS(EEXIST, epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &wanted));
	FAILS(EBADF, epoll_ctl(set, EPOLL_CTL_ADD, 77, &wanted));
	FAILS(EINVAL, epoll_ctl(set, EPOLL_CTL_ADD, set, &wanted));
	CHECK(epoll_wait(set, found, 4, 10) == 0);
	CHECK(write(ends[1], "x", 1) == 1 && epoll_wait(set, found, 4, -1) == 1 && found[0].data.u32 == 1);
	CHECK(write(event, &one, 8) == 8 && epoll_wait(set, found, 4, -1) == 2);
	CHECK(read(ends[0], &byte, 1) == 1 && read(event, &one, 8) == 8 && epoll_wait(set, found, 4, 0) == 0);
	pid_t child = fork();

	if (child == 0) {
		usleep(30000);
		_exit(write(pair[1], "x", 1) == 1 ? 0 : 1);
	}
	CHECK(epoll_wait(set, found, 4, -1) == 1 && found[0].data.u32 == 3 && found[0].events == EPOLLIN);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return finish();
}
