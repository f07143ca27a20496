// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * ether-latency answer ADDRESS: answers datagrams of UDP at that address, for ever.
 *
 * ether-latency ask ADDRESS ROUNDS: asks there, and prints how long that takes in ticks of the time
 * stamp counter, which all CPUs share: median and most of so many rounds, from before send to
 * behind recv there, from there back, and both together.
 */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "latency.h"

#define PORT 7200

/* What is sent: when it was sent, when it came, and when the answer was sent. */
struct packet {
	uint64_t asked, came, answered;
	char more[40];
};

static struct sockaddr_in address;

static void be_urgent(void)
{
	struct sched_param urgent = { .sched_priority = 80 };

	if (mlockall(MCL_CURRENT | MCL_FUTURE) || sched_setscheduler(0, SCHED_FIFO, &urgent))
		fail("urgency");
}

static void answer(int fd)
{
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)))
		fail("bind");
	for (;;) {
		struct sockaddr_in from;
		socklen_t length = sizeof(from);
		struct packet packet;

		if (recvfrom(fd, &packet, sizeof(packet), 0, (struct sockaddr *)&from, &length) !=
		    sizeof(packet))
			fail("recvfrom");
		packet.came = tsc();
		packet.answered = tsc();
		if (sendto(fd, &packet, sizeof(packet), 0, (struct sockaddr *)&from, length) < 0)
			fail("sendto");
	}
}

static void print(uint64_t *ticks)
{
	sort(ticks);
	printf("%lu %lu ", ticks[rounds / 2], ticks[rounds - 1]);
}

static int ask(int fd)
{
	uint64_t *ways[3];

	for (int way = 0; way < 3; way++)
		ways[way] = calloc(rounds, sizeof(**ways));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		fail("connect");
	/* The first ones ask for the stations, and fill caches. */
	for (int round = -10; round < rounds; round++) {
		struct packet packet = { 0 };
		uint64_t end;

		usleep(400);
		packet.asked = tsc();
		if (send(fd, &packet, sizeof(packet), 0) < 0 ||
		    recv(fd, &packet, sizeof(packet), 0) != sizeof(packet))
			fail("round trip");
		end = tsc();
		if (round < 0)
			continue;
		ways[0][round] = packet.came - packet.asked;
		ways[1][round] = end - packet.answered;
		ways[2][round] = end - packet.asked;
	}
	for (int way = 0; way < 3; way++)
		print(ways[way]);
	puts("");
	return 0;
}

int main(int count, char **arguments)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (count < 3 || fd < 0 || !inet_aton(arguments[2], &address.sin_addr))
		return 2;
	address.sin_family = AF_INET;
	address.sin_port = htons(PORT);
	be_urgent();
	if (count == 3)
		answer(fd);
	rounds = atoi(arguments[3]);
	return ask(fd);
}
