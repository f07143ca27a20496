// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * can-latency PORT ROUNDS
 *
 * How long it takes from the interrupt of a CAN controller until the program has read the frame, in
 * ticks of the time stamp counter: median and most of so many rounds. The reader has can0. At the
 * other end of the bus is an SJA1000 at the I/O port PORT, which nobody drives but this program. A
 * thread that is less urgent than the reader's sends by it, so that the interrupt follows the
 * instruction at which the time begins.
 *
 * can-latency PORT flood COUNT: sends so many frames at once, and then reads until none comes.
 */
#define _GNU_SOURCE
#include <linux/can.h>
#include <linux/can/raw.h>
#include <net/if.h>
#include <poll.h>
#include <string.h>
#include <sys/io.h>
#include <sys/socket.h>
#include <unistd.h>

#include "latency.h"

/* Registers of an SJA1000. */
#define MODE 0
#define COMMAND 1
#define ENABLED 4
#define FRAME 16
#define CLOCK 31

#define RESET 1
#define SINGLE_FILTER 8
#define SEND 1
#define PELICAN 0xcf

static unsigned short port;
static int can;

static void start_sender(void)
{
	if (ioperm(port, 32, 1))
		fail("ports");
	outb(RESET, port + MODE);
	outb(PELICAN, port + CLOCK);
	outb(0, port + ENABLED);
	outb(SINGLE_FILTER, port + MODE);
	if (inb(port + MODE) & RESET)
		fail("the controller does not start");
}

/* Writes a frame with two bytes of data. */
static void prepare(int number)
{
	outb(2, port + FRAME);
	outb(0x123 >> 3, port + FRAME + 1);
	outb((0x123 << 5) & 0xff, port + FRAME + 2);
	outb(number & 0xff, port + FRAME + 3);
	outb(number >> 8 & 0xff, port + FRAME + 4);
}

static void *send_frames(void *unused)
{
	(void)unused;
	/* Linux's permissions are a thread's. */
	start_sender();
	for (int i = 0; i < rounds; i++) {
		while (sem_wait(&next))
			;
		/* The reader waits by now. */
		prepare(i);
		start = tsc();
		outb(SEND, port + COMMAND);
	}
	return NULL;
}

static void open_can(void)
{
	struct sockaddr_can to = { .can_family = AF_CAN, .can_ifindex = if_nametoindex("can0") };

	can = socket(AF_CAN, SOCK_RAW, CAN_RAW);
	if (can < 0 || !to.can_ifindex || bind(can, (struct sockaddr *)&to, sizeof(to)))
		fail("can0");
}

static int flood(int count)
{
	struct pollfd polled = { can, POLLIN, 0 };
	struct can_frame frame;
	int got = 0;

	start_sender();
	for (int i = 0; i < count; i++) {
		prepare(i);
		outb(SEND, port + COMMAND);
		/* Keeps room. */
		if (recv(can, &frame, sizeof(frame), MSG_DONTWAIT) > 0)
			got++;
	}
	while (poll(&polled, 1, 100) == 1 && read(can, &frame, sizeof(frame)) > 0)
		got++;
	printf("%d of %d\n", got, count);
	return got == 0;
}

int main(int argc, char **argv)
{
	struct can_frame frame;
	pthread_t sender;
	uint64_t *ticks;

	if (argc < 3)
		return 2;
	port = strtoul(argv[1], NULL, 0);
	open_can();
	if (argc == 4)
		return flood(atoi(argv[3]));
	rounds = atoi(argv[2]);
	ticks = calloc(rounds, sizeof(*ticks));
	if (rounds <= 0 || !ticks)
		return 2;
	sender = start_other(send_frames);
	for (int i = 0; i < rounds; i++) {
		sem_post(&next);
		if (read(can, &frame, sizeof(frame)) != sizeof(frame))
			fail("read");
		ticks[i] = tsc() - start;
		if (frame.can_id != 0x123 || frame.data[0] != (i & 0xff) ||
		    frame.data[1] != i >> 8) {
			fprintf(stderr, "frame %d is %#x\n", i, frame.can_id);
			return 1;
		}
	}
	pthread_join(sender, NULL);
	sort(ticks);
	printf("%lu %lu\n", ticks[rounds / 2], ticks[rounds - 1]);
	return 0;
}
