// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * serial-answer ROUNDS
 *
 * How long it takes from a byte's interrupt until the program has read the byte, and until it has
 * answered by RTS, in ticks of the time stamp counter: least, median and most of so many rounds.
 * The UART of ttyS1 hears itself. A thread that is less urgent than the reader's sends the byte by
 * the UART's port, so that the interrupt follows the instruction at which the time begins. The port
 * is the program's to use.
 *
 * serial-answer flood COUNT: sends so many bytes to itself, one after the other, by write(2).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "latency.h"

#define LINE "/dev/ttyS1"
#define PORT 0x2f8
/* Only <asm/termios.h> has them. */
#define TIOCM_OUT2 0x4000
#define TIOCM_LOOP 0x8000

static int line;

static void open_line(void)
{
	int lines = TIOCM_LOOP | TIOCM_OUT2 | TIOCM_DTR;
	struct termios termios;

	line = open(LINE, O_RDWR | O_NOCTTY | O_NONBLOCK);
	if (line < 0 || tcgetattr(line, &termios))
		fail(LINE);
	cfmakeraw(&termios);
	cfsetspeed(&termios, B115200);
	termios.c_cflag |= CREAD | CLOCAL;
	termios.c_cc[VMIN] = 1;
	termios.c_cc[VTIME] = 0;
	if (tcsetattr(line, TCSANOW, &termios) || fcntl(line, F_SETFL, 0) ||
	    ioctl(line, TIOCMSET, &lines))
		fail("settings");
	tcflush(line, TCIOFLUSH);
}

static void *send_bytes(void *unused)
{
	(void)unused;
	if (ioperm(PORT, 1, 1))
		fail("port");
	for (int i = 0; i < rounds; i++) {
		while (sem_wait(&next))
			;
		/* The reader waits by now. */
		start = tsc();
		outb('a' + i % 26, PORT);
	}
	return NULL;
}

static void print(const char *name, uint64_t *ticks)
{
	sort(ticks);
	printf("%s %lu %lu %lu\n", name, ticks[0], ticks[rounds / 2], ticks[rounds - 1]);
}

static int flood(int count)
{
	char byte;
	int got = 0;

	fcntl(line, F_SETFL, O_NONBLOCK);
	for (int i = 0; i < count; i++) {
		if (write(line, "x", 1) != 1)
			fail("write");
		/* Keeps room. */
		if (read(line, &byte, 1) == 1)
			got++;
	}
	for (int tries = 0; got < count && tries < 1000; tries++) {
		while (read(line, &byte, 1) == 1)
			got++;
		usleep(1000);
	}
	printf("%d of %d\n", got, count);
	return got != count;
}

int main(int argc, char **argv)
{
	int rts = TIOCM_RTS;
	uint64_t *read_after, *answered_after;
	pthread_t sender;
	char byte;

	open_line();
	if (argc == 3 && strcmp(argv[1], "flood") == 0)
		return flood(atoi(argv[2]));
	rounds = argc == 2 ? atoi(argv[1]) : 0;
	read_after = calloc(rounds, sizeof(*read_after));
	answered_after = calloc(rounds, sizeof(*answered_after));
	if (rounds <= 0 || !read_after || !answered_after)
		return 2;
	sender = start_other(send_bytes);
	for (int i = 0; i < rounds; i++) {
		uint64_t now;

		ioctl(line, TIOCMBIC, &rts);
		sem_post(&next);
		if (read(line, &byte, 1) != 1)
			fail("read");
		now = tsc();
		if (ioctl(line, TIOCMBIS, &rts))
			fail("RTS");
		answered_after[i] = tsc() - start;
		read_after[i] = now - start;
		if (byte != 'a' + i % 26) {
			fprintf(stderr, "byte %d is %#x\n", i, byte);
			return 1;
		}
	}
	pthread_join(sender, NULL);
	print("read", read_after);
	print("answered", answered_after);
	return 0;
}
