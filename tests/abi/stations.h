/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * For tests of sockets of IPv4: the network interface near, whose wire leads to a peer, and their
 * addresses.
 */
#ifndef STATIONS_H
#define STATIONS_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "check.h"

#define NEAR "10.9.0.1"
#define FAR "10.9.0.2"
#define NOBODY "10.9.0.77"
#define ALL "10.9.0.255"
/* The peer sends back what comes there; nobody has the other one. */
#define ECHO 7000
#define CLOSED 7999
/* Milliseconds within which something arrives, however busy the host is. */
#define PATIENCE 30000
/* Milliseconds after which nothing comes any more. */
#define NEVER 200

static inline struct sockaddr_in address(const char *ip, int port)
{
	struct sockaddr_in made = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_aton(ip, &made.sin_addr);
	return made;
}

#define ADDRESS(ip, port) ((struct sockaddr *)&(struct sockaddr_in[]){ address(ip, port) })
#define LENGTH sizeof(struct sockaddr_in)

static inline struct sockaddr_in name_of(int fd)
{
	struct sockaddr_in name;
	socklen_t length = sizeof(name);

	CHECK(getsockname(fd, (struct sockaddr *)&name, &length) == 0 && length == sizeof(name));
	return name;
}

#endif
