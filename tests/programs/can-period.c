// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * can-period CAN BUS FRAMES
 *
 * Has the broadcast manager send a frame each millisecond by the CAN interface CAN, and prints how
 * far from a millisecond the intervals were at which they came by BUS: least, the 99th percentile
 * of the distance, most, and how far the last frame was from where the first one's grid has it, all
 * in nanoseconds. Times are those that the kernel puts on the frames.
 */
#define _GNU_SOURCE
#include <linux/can.h>
#include <linux/can/bcm.h>
#include <linux/can/raw.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PERIOD 1000000L
#define SECOND 1000000000L

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_can address(const char *name)
{
	struct sockaddr_can to = { .can_family = AF_CAN, .can_ifindex = if_nametoindex(name) };

	if (!to.can_ifindex)
		die(name);
	return to;
}

/* When the next frame came. */
static long next(int fd)
{
	char control[CMSG_SPACE(sizeof(struct timespec))];
	struct can_frame frame;
	struct iovec part = { &frame, sizeof(frame) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *told;
	struct timespec stamp;

	if (recvmsg(fd, &message, 0) != sizeof(frame))
		die("recvmsg");
	told = CMSG_FIRSTHDR(&message);
	if (!told || told->cmsg_type != SCM_TIMESTAMPNS)
		die("no time");
	memcpy(&stamp, CMSG_DATA(told), sizeof(stamp));
	return stamp.tv_sec * SECOND + stamp.tv_nsec;
}

static int compare(const void *one, const void *other)
{
	long a = *(const long *)one, b = *(const long *)other;

	return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
	struct sockaddr_can from, heard;
	int frames = argc > 3 ? atoi(argv[3]) : 0, on = 1;
	long *intervals = calloc(frames, sizeof(*intervals)), first, before, now;
	int manager = socket(AF_CAN, SOCK_DGRAM, CAN_BCM), fd = socket(AF_CAN, SOCK_RAW, CAN_RAW);
	struct {
		struct bcm_msg_head head;
		struct can_frame frame;
	} job = {
		.head = { .opcode = TX_SETUP, .flags = SETTIMER | STARTTIMER,
			  .ival2 = { .tv_usec = PERIOD / 1000 }, .can_id = 0x123, .nframes = 1 },
		.frame = { .can_id = 0x123, .can_dlc = 8 },
	};

	if (frames < 2 || !intervals || manager < 0 || fd < 0)
		die("can-period CAN BUS FRAMES");
	mlockall(MCL_CURRENT | MCL_FUTURE);
	from = address(argv[1]);
	heard = address(argv[2]);
	if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)))
		die("SO_TIMESTAMPNS");
	if (bind(fd, (struct sockaddr *)&heard, sizeof(heard)) ||
	    connect(manager, (struct sockaddr *)&from, sizeof(from)))
		die("bind");
	if (write(manager, &job, sizeof(job)) != sizeof(job))
		die("TX_SETUP");
	/* The first one is sent by the write. */
	next(fd);
	first = before = next(fd);
	for (int i = 0; i < frames; i++) {
		now = next(fd);
		intervals[i] = now - before - PERIOD;
		before = now;
	}
	now -= first + frames * PERIOD;
	qsort(intervals, frames, sizeof(*intervals), compare);
	long least = intervals[0], most = intervals[frames - 1];

	for (int i = 0; i < frames; i++)
		intervals[i] = labs(intervals[i]);
	qsort(intervals, frames, sizeof(*intervals), compare);
	printf("%ld %ld %ld %ld\n", least, intervals[frames * 99 / 100], most, now);
	return 0;
}
