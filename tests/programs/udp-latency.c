// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * udp-latency ROUNDS [NAMESPACE]
 *
 * How long it takes from sending a datagram from the interface near (10.9.0.1) to having the answer
 * of another thread, which has the interface far (10.9.0.2) at the other end of the wire, in ticks
 * of the time stamp counter: median and most of so many rounds. Both threads have one CPU. Where
 * far is in a network namespace, that is the file NAMESPACE.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "latency.h"

#define PORT 7100

static const char *namespace;

static struct sockaddr_in address(const char *ip)
{
	struct sockaddr_in made = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	inet_aton(ip, &made.sin_addr);
	return made;
}

/* A socket of that interface, bound to its address. */
static int bound(const char *name, const char *ip)
{
	struct sockaddr_in own = address(ip);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, strlen(name)) ||
	    bind(fd, (struct sockaddr *)&own, sizeof(own)))
		fail(name);
	return fd;
}

static void *answer(void *unused)
{
	struct sockaddr_in from;
	struct sockaddr *to = (struct sockaddr *)&from;
	char data[2000];
	int fd;

	(void)unused;
	if (namespace && setns(open(namespace, O_RDONLY), CLONE_NEWNET))
		fail("namespace");
	fd = bound("far", "10.9.0.2");
	sem_post(&next);
	for (;;) {
		socklen_t length = sizeof(from);
		ssize_t size = recvfrom(fd, data, sizeof(data), 0, to, &length);

		if (size < 0 || sendto(fd, data, size, 0, to, length) != size)
			fail("answer");
	}
	return NULL;
}

int main(int count, char **arguments)
{
	struct sockaddr_in far = address("10.9.0.2");
	char data[64] = "", got[64];
	uint64_t *took;
	int fd;

	if (count < 2)
		return 2;
	rounds = atoi(arguments[1]);
	namespace = arguments[2];
	took = calloc(rounds, sizeof(*took));
	start_other(answer);
	sem_wait(&next);
	fd = bound("near", "10.9.0.1");
	if (connect(fd, (struct sockaddr *)&far, sizeof(far)))
		fail("connect");
	/* The first ones ask for the stations, and fill caches. */
	for (int round = -10; round < rounds; round++) {
		uint64_t began;

		/* QEMU's card keeps 128 us between two interrupts. */
		usleep(400);
		began = tsc();
		if (send(fd, data, sizeof(data), 0) < 0 ||
		    recv(fd, got, sizeof(got), 0) != sizeof(got))
			fail("round trip");
		if (round >= 0)
			took[round] = tsc() - began;
	}
	sort(took);
	printf("%lu %lu\n", took[rounds / 2], took[rounds - 1]);
	return 0;
}
