// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * devices ONE OTHER UIO CAN BUS NEAR FAR
 *
 * Every 10 ms sends a byte on the serial line ONE, which is wired to OTHER, and reads it there;
 * has QEMU's device edu, which UIO (/dev/uioN) leads to, raise an interrupt, and waits for it;
 * sends a frame by the CAN interface CAN, which comes by BUS; and one by the network interface
 * NEAR, which comes by FAR. Writes to the debug port 0xe9 an S for each byte, an I for each
 * interrupt, an F for each frame of CAN, an N for each of the network, and an X for what is not as
 * it should be.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/can.h>
#include <linux/can/raw.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

/* Registers of edu, in words. */
#define RAISE 24
#define ACKNOWLEDGE 25
#define PATIENCE 1000

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int serial(const char *name)
{
	struct termios settings;
	int file = open(name, O_RDWR | O_NOCTTY);

	if (file < 0 || tcgetattr(file, &settings))
		die(name);
	cfmakeraw(&settings);
	cfsetspeed(&settings, B115200);
	if (tcsetattr(file, TCSANOW, &settings))
		die(name);
	return file;
}

static int can(const char *name)
{
	struct sockaddr_can to = { .can_family = AF_CAN, .can_ifindex = if_nametoindex(name) };
	int file = socket(AF_CAN, SOCK_RAW, CAN_RAW);

	if (file < 0 || !to.can_ifindex || bind(file, (struct sockaddr *)&to, sizeof(to)))
		die(name);
	return file;
}

static int network(const char *name)
{
	struct sockaddr_ll to = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_802_EX1),
		.sll_ifindex = if_nametoindex(name),
	};
	int file = socket(AF_PACKET, SOCK_RAW, 0);

	if (file < 0 || !to.sll_ifindex || bind(file, (struct sockaddr *)&to, sizeof(to)))
		die(name);
	return file;
}

/* Reads COUNT bytes in a second at most. */
static int reads(int file, void *place, size_t count)
{
	struct pollfd wanted = { .fd = file, .events = POLLIN };

	return poll(&wanted, 1, PATIENCE) == 1 && read(file, place, count) == (ssize_t)count;
}

int main(int argc, char **argv)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	volatile uint32_t *registers;
	uint32_t before = 0, count;
	/* For all stations, from one that nobody has. */
	uint8_t packet[ETH_ZLEN] = { 255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1,
				     ETH_P_802_EX1 >> 8, ETH_P_802_EX1 & 255 };
	int one, other, uio, sender, receiver, near, far;

	if (argc < 8 || ioperm(0xe9, 1, 1))
		die("devices ONE OTHER UIO CAN BUS NEAR FAR");
	near = network(argv[6]);
	far = network(argv[7]);
	sender = can(argv[4]);
	receiver = can(argv[5]);
	one = serial(argv[1]);
	other = serial(argv[2]);
	uio = open(argv[3], O_RDWR);
	if (uio < 0)
		die(argv[3]);
	registers = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, uio, 0);
	if (registers == MAP_FAILED)
		die("mmap");
	for (uint8_t sent = 0;; sent++) {
		uint8_t read = ~sent;

		int is_there = write(one, &sent, 1) == 1 && reads(other, &read, 1) && read == sent;

		outb(is_there ? 'S' : 'X', 0xe9);
		registers[RAISE] = 1;
		is_there = reads(uio, &count, sizeof(count)) && count > before;
		outb(is_there ? 'I' : 'X', 0xe9);
		before = count;
		registers[ACKNOWLEDGE] = 1;

		struct can_frame frame = { .can_id = 0x123, .can_dlc = 1, .data = { sent } }, came;

		is_there = write(sender, &frame, sizeof(frame)) == sizeof(frame) &&
			   reads(receiver, &came, sizeof(came)) && came.data[0] == sent;
		outb(is_there ? 'F' : 'X', 0xe9);

		uint8_t heard[ETH_FRAME_LEN];

		packet[ETH_HLEN] = sent;
		is_there = write(near, packet, sizeof(packet)) == sizeof(packet) &&
			   reads(far, heard, sizeof(packet)) && heard[ETH_HLEN] == sent;
		outb(is_there ? 'N' : 'X', 0xe9);
		nanosleep(&pause, NULL);
	}
}
