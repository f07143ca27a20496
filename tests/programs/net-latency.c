// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * net-latency HERE THERE ROUNDS
 *
 * How long a frame takes from one program to another, in ticks of the time stamp counter: median
 * and most of so many rounds. Both interfaces are on one wire. The reader has HERE. A thread that
 * is less urgent sends by THERE, so that the interrupt follows the call at which the time begins.
 *
 * net-latency HERE THERE ROUNDS back: the reader sends, and the other thread sends the frame back.
 *
 * net-latency HERE THERE ROUNDS above: the other thread is more urgent than the one that hands
 * frames over, and computes until the frame is read, for 2 ms at most.
 *
 * net-latency THERE flood SECONDS: sends frames as fast as it can.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "latency.h"

#define PROTOCOL 0x88b5
#define LENGTH 60

/* Ticks. */
#define PATIENCE 2000000

static int here, there, is_above;
/* Frames that were read. */
static volatile int done;

static int bound(const char *name)
{
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(PROTOCOL),
		.sll_ifindex = if_nametoindex(name),
	};
	int fd = socket(AF_PACKET, SOCK_RAW, 0);

	if (fd < 0 || !to.sll_ifindex || bind(fd, (struct sockaddr *)&to, sizeof(to)))
		fail(name);
	return fd;
}

static void put(int fd, int number)
{
	unsigned char frame[LENGTH];

	memset(frame, 0xff, ETH_ALEN);
	memset(frame + ETH_ALEN, 2, ETH_ALEN);
	frame[12] = PROTOCOL >> 8;
	frame[13] = PROTOCOL & 0xff;
	memset(frame + ETH_HLEN, number, LENGTH - ETH_HLEN);
	if (send(fd, frame, sizeof(frame), 0) != sizeof(frame))
		fail("send");
}

static void get(int fd, int number)
{
	unsigned char frame[ETH_FRAME_LEN];

	if (recv(fd, frame, sizeof(frame), 0) != LENGTH || frame[ETH_HLEN] != (number & 0xff))
		fail("recv");
}

/* Below the thread that hands frames over, or between that and the reader. */
static void give_way(void)
{
	struct sched_param low = { .sched_priority = is_above ? 60 : 20 };

	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &low))
		fail("priority");
}

static void *send_frames(void *unused)
{
	(void)unused;
	give_way();
	for (int i = 0; i < rounds; i++) {
		while (sem_wait(&next))
			;
		/* The reader waits by now. */
		start = tsc();
		put(there, i);
		while (is_above && done <= i && tsc() - start < PATIENCE)
			;
	}
	return NULL;
}

static void *send_back(void *unused)
{
	(void)unused;
	give_way();
	for (int i = 0; i < rounds; i++) {
		get(there, i);
		put(there, i);
	}
	return NULL;
}

static int flood(const char *name, double seconds)
{
	struct timespec now, begin;
	int fd = bound(name), count = 0;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		for (int i = 0; i < 5; i++)
			put(fd, count++);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begin.tv_sec + (now.tv_nsec - begin.tv_nsec) * 1e-9 < seconds);
	printf("%d frames\n", count);
	return 0;
}

int main(int argc, char **argv)
{
	int back = argc == 5 && strcmp(argv[4], "back") == 0;
	pthread_t other;
	uint64_t *ticks;

	if (argc == 4 && strcmp(argv[2], "flood") == 0)
		return flood(argv[1], atof(argv[3]));
	if (argc < 4)
		return 2;
	is_above = argc == 5 && !back;
	here = bound(argv[1]);
	there = bound(argv[2]);
	rounds = atoi(argv[3]);
	ticks = calloc(rounds, sizeof(*ticks));
	if (rounds <= 0 || !ticks)
		return 2;
	other = start_other(back ? send_back : send_frames);
	for (int i = 0; i < rounds; i++) {
		/* QEMU's card interrupts once in 128 microseconds at most. */
		usleep(400);
		if (back) {
			start = tsc();
			put(here, i);
		} else {
			sem_post(&next);
		}
		get(here, i);
		ticks[i] = tsc() - start;
		done = i + 1;
	}
	pthread_join(other, NULL);
	sort(ticks);
	printf("%lu %lu\n", ticks[rounds / 2], ticks[rounds - 1]);
	return 0;
}
