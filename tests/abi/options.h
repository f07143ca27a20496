/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For tests of sockets: options whose values are an int.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

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

#endif
