// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Sleeps and wakes every PERIOD microseconds for SECONDS. Prints the number of
 * wake-ups and how late they were: least, mean and most, in nanoseconds from the
 * deadline to the program having read the clock. SIGTERM ends it earlier.
 *
 * With "port" it prints to the debug port 0xe9, and a dot there for each hundred
 * wake-ups, so that it needs nothing of Linux.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <time.h>

#define PORT 0xe9

#define SECOND 1000000000L

static long nanoseconds(const struct timespec *time)
{
	return time->tv_sec * SECOND + time->tv_nsec;
}

static volatile sig_atomic_t over;

static void end_now(int number)
{
	(void)number;
	over = 1;
}

int main(int argc, char **argv)
{
	long period, end, deadline, least = SECOND, most = 0, sum = 0, count = 0;
	int to_port = argc == 4 && !strcmp(argv[3], "port");
	struct timespec time;
	char line[128];

	if (argc != 3 && !to_port) {
		fprintf(stderr, "usage: periodic PERIOD_US SECONDS [port]\n");
		return 2;
	}
	if (to_port && ioperm(PORT, 1, 1)) {
		perror("periodic: ioperm");
		return 1;
	}
	signal(SIGTERM, end_now);
	period = atol(argv[1]) * 1000;
	clock_gettime(CLOCK_MONOTONIC, &time);
	deadline = nanoseconds(&time);
	end = deadline + atol(argv[2]) * SECOND;
	do {
		long late;

		deadline += period;
		time.tv_sec = deadline / SECOND;
		time.tv_nsec = deadline % SECOND;
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL)) {
			if (over)
				break;
			return 1;
		}
		clock_gettime(CLOCK_MONOTONIC, &time);
		late = nanoseconds(&time) - deadline;
		if (late < least)
			least = late;
		if (late > most)
			most = late;
		sum += late;
		count++;
		if (to_port && count % 100 == 0)
			outb('.', PORT);
	} while (deadline < end && !over);
	snprintf(line, sizeof(line), "%ld %ld %ld %ld\n", count, least, count ? sum / count : 0,
		 most);
	if (!to_port)
		fputs(line, stdout);
	else
		outsb(PORT, line, strlen(line));
	return 0;
}
