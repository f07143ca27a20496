// SPDX-License-Identifier: MIT OR Apache-2.0
/* Writes a letter to the debug port 0xe9 every PERIOD microseconds, for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/io.h>
#include <time.h>

int main(int argc, char **argv)
{
	struct timespec next;
	long period = (argc > 1 ? atol(argv[1]) : 10000) * 1000;

	if (ioperm(0xe9, 1, 1)) {
		perror("counter: ioperm");
		return 1;
	}
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (int i = 0;; i++) {
		outb('a' + i % 26, 0xe9);
		next.tv_nsec += period;
		while (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
}
