/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For tests of sockets: options whose values are an int.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include <linux/filter.h>
#include <sys/socket.h>

#include "check.h"

static inline int set(int fd, int level, int name, int value)
{
	return setsockopt(fd, level, name, &value, sizeof(value));
}

static inline int get(int fd, int level, int name)
{
	socklen_t length = sizeof(int);
	int value = -1;

	CHECK(getsockopt(fd, level, name, &value, &length) == 0);
	return value;
}

/* Has a program of classic BPF decide what a socket gets. */
static inline int attach(int fd, struct sock_filter *filter, unsigned short length)
{
	struct sock_fprog program = { length, filter };

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
}

/* How many instructions the filter of a socket has, which are told if there is room; -1 if not. */
static inline int filter_of(int fd, struct sock_filter *filter, socklen_t room)
{
	return getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, filter, &room) ? -1 : (int)room;
}

#define ATTACH(fd, filter) attach(fd, filter, sizeof(filter) / sizeof(*(filter)))

#endif
