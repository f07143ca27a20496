// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * From the moment when a timer's interrupt is due to the thread that waits for it,
 * until it has read the clock. Every interval, absolute times.
 *
 *   timer      clock_nanosleep, as cyclictest does
 *   interrupt  a read of a timerfd, which blocks until the timer's interrupt: the way in which
 *              a thread waits for the interrupts of a device (UIO, serial line)
 *
 * Both clocks are CLOCK_MONOTONIC in nanoseconds, so `ticks_per_us` does not apply: 1000.
 */
#include "bench.h"

#include <sys/timerfd.h>

static struct timespec time_of(uint64_t ns)
{
	return (struct timespec){ (time_t)(ns / 1000000000), (long)(ns % 1000000000) };
}

int main(int argc, char **argv)
{
	int by_descriptor, fd = -1;
	uint64_t deadline;

	begin(argc, argv);
	by_descriptor = wants("interrupt");
	if (!by_descriptor && !wants("timer"))
		return unknown();
	if (by_descriptor) {
		fd = timerfd_create(CLOCK_MONOTONIC, 0);
		if (fd < 0)
			fail("timerfd_create");
	}
	deadline = nanoseconds(CLOCK_MONOTONIC);
	for (long round = -WARM_UP; round < options.samples; round++) {
		uint64_t now, expirations;

		now = nanoseconds(CLOCK_MONOTONIC);
		do {
			deadline += (uint64_t)options.interval * 1000;
		} while (deadline <= now);
		if (by_descriptor) {
			struct itimerspec setting = { .it_value = time_of(deadline) };

			if (timerfd_settime(fd, TFD_TIMER_ABSTIME, &setting, NULL))
				fail("timerfd_settime");
			if (read(fd, &expirations, sizeof(expirations)) != sizeof(expirations))
				fail("read");
		} else {
			struct timespec until = time_of(deadline);

			if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL))
				fail("clock_nanosleep");
		}
		sample(round, nanoseconds(CLOCK_MONOTONIC) - deadline);
	}
	return report_in(1000);
}
