// SPDX-License-Identifier: MIT OR Apache-2.0
/* Sleeps and wakes every PERIOD microseconds for SECONDS; prints the number of wake-ups. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
	long period, seconds, count = 0;
	struct timespec next, now, end;

	if (argc != 3) {
		fprintf(stderr, "usage: periodic PERIOD_US SECONDS\n");
		return 2;
	}
	period = atol(argv[1]) * 1000;
	seconds = atol(argv[2]);
	clock_gettime(CLOCK_MONOTONIC, &next);
	end = next;
	end.tv_sec += seconds;
	do {
		next.tv_nsec += period;
		while (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL))
			return 1;
		count++;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
	printf("%ld\n", count);
	return 0;
}
