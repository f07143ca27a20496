// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * sets COUNT
 *
 * Has so many epoll sets, the last of which has an eventfd, and passes that over a socket: its
 * place in the set goes along. Tells what came of it.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ASSERT(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "line %d: %s: %m\n", __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

int main(int count, char **arguments)
{
	unsigned long wanted = count == 2 ? strtoul(arguments[1], NULL, 10) : 0, at;
	struct rlimit limit = { .rlim_cur = wanted + 64, .rlim_max = wanted + 64 };
	struct epoll_event event = { .events = EPOLLIN };
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec data = { .iov_base = &byte, .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &data,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	int sockets[2], told, set = -1;
	uint64_t number;

	ASSERT(wanted > 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
	ASSERT(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
	ASSERT((told = eventfd(0, 0)) >= 0);
	for (at = 0; at < wanted; at++)
		ASSERT((set = epoll_create1(0)) >= 0);
	ASSERT(epoll_ctl(set, EPOLL_CTL_ADD, told, &event) == 0);
	puts("has them");
	fflush(stdout);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &told, sizeof(int));
	ASSERT(sendmsg(sockets[0], &message, 0) == 1);
	ASSERT(recvmsg(sockets[1], &message, 0) == 1);
	memcpy(&told, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
	ASSERT(epoll_wait(set, &event, 1, 0) == 0);
	number = 7;
	ASSERT(write(told, &number, sizeof(number)) == sizeof(number));
	ASSERT(epoll_wait(set, &event, 1, 0) == 1);
	puts("is told");
	return 0;
}
