// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * can-hostile NAME HOW
 *
 * A program that wants all that sockets of a CAN interface can be given: sockets, filters, cyclic
 * frames, or answers without end, which it then holds until it is killed; or it sends, or makes
 * sockets and drops them, as fast as it can for a third of a second.
 */
#include <errno.h>
#include <linux/can.h>
#include <linux/can/bcm.h>
#include <linux/can/raw.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* More than there can be. */
#define MANY 400
#define FILTERS 512
/* Frames of the longest job, and more answers than there is room for. */
#define LONGEST 256
#define ANSWERS 600

static struct sockaddr_can address = { .can_family = AF_CAN };

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* A socket that receives; -1 if there is none to be had. */
static int receiver(int filters)
{
	static struct can_filter wanted[FILTERS];
	int fd = socket(PF_CAN, SOCK_RAW, CAN_RAW);

	if (fd < 0)
		return -1;
	/* None of them fits, so each is looked at. */
	for (int i = 0; i < filters; i++) {
		wanted[i].can_id = 0x700 + i % 16;
		wanted[i].can_mask = CAN_SFF_MASK;
	}
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    (filters && setsockopt(fd, SOL_CAN_RAW, CAN_RAW_FILTER, wanted,
				   filters * sizeof(*wanted)))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* A cyclic frame; -1 if there is none to be had. */
static int cyclic(int fd, int number)
{
	struct {
		struct bcm_msg_head head;
		struct can_frame frame;
	} job = {
		.head = { .opcode = TX_SETUP, .flags = SETTIMER | STARTTIMER, .nframes = 1,
			  .can_id = number, .ival2 = { .tv_usec = 100 } },
		.frame = { .can_id = number, .can_dlc = 2 },
	};

	return write(fd, &job, sizeof(job)) == sizeof(job) ? 0 : -1;
}

/* A socket with all the longest answers that find room, and nobody takes; -1 if there are none. */
static int answered(void)
{
	static struct {
		struct bcm_msg_head head;
		struct can_frame frames[LONGEST];
	} job = { .head = { .opcode = TX_SETUP, .nframes = LONGEST } };
	struct bcm_msg_head question = { .opcode = TX_READ };
	int fd = socket(PF_CAN, SOCK_DGRAM, CAN_BCM);

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) ||
	    write(fd, &job, sizeof(job)) != sizeof(job))
		return -1;
	for (int i = 0; i < ANSWERS; i++)
		if (write(fd, &question, sizeof(question)) < 0)
			return -1;
	return fd;
}

static void hold(int count)
{
	printf("holds %d, then: %s\n", count, strerror(errno));
	fflush(stdout);
	for (;;)
		pause();
}

static int is_time(void)
{
	static double end;
	struct timespec now;
	double seconds;

	clock_gettime(CLOCK_MONOTONIC, &now);
	seconds = now.tv_sec + now.tv_nsec * 1e-9;
	if (end == 0)
		end = seconds + 0.3;
	return seconds < end;
}

int main(int argc, char **argv)
{
	int count = 0, fd;

	if (argc != 3)
		return 2;
	address.can_ifindex = if_nametoindex(argv[1]);
	if (!address.can_ifindex)
		fail(argv[1]);
	if (!strcmp(argv[2], "sockets") || !strcmp(argv[2], "filters")) {
		int filters = argv[2][0] == 'f' ? FILTERS : 0;

		while (count < MANY && receiver(filters) >= 0)
			count++;
		hold(count);
	}
	if (!strcmp(argv[2], "answers")) {
		while (count < MANY && answered() >= 0)
			count++;
		hold(count);
	}
	if (!strcmp(argv[2], "jobs")) {
		fd = socket(PF_CAN, SOCK_DGRAM, CAN_BCM);
		if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)))
			fail("broadcast manager");
		while (count < MANY && !cyclic(fd, count))
			count++;
		hold(count);
	}
	if (!strcmp(argv[2], "send")) {
		struct can_frame frame = { .can_id = 0x55, .can_dlc = 8 };

		fd = receiver(1);
		for (; is_time(); count++)
			if (send(fd, &frame, sizeof(frame), MSG_DONTWAIT) < 0 && errno != ENOBUFS &&
			    errno != EAGAIN)
				fail("send");
	} else if (!strcmp(argv[2], "churn")) {
		for (; is_time(); count++) {
			fd = receiver(count % 2 ? FILTERS : 0);
			if (fd < 0)
				fail("socket");
			close(fd);
		}
	} else {
		return 2;
	}
	printf("%d times\n", count);
	return 0;
}
