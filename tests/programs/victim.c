// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Tells on its standard output every 50 ms whether Linux serves it, and of each SIGUSR2, whose
 * handler it has. It counts in memory that it shares with Linux. It never asks Linux with an
 * argument "alone".
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t told;

static void on_signal(int signal)
{
	told++;
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal };
	struct timespec pause = { 0, 50000000 };
	char line[64];
	int fd = memfd_create("count", 0);
	volatile int *count;

	if (ftruncate(fd, sizeof(*count)) != 0)
		return 1;
	count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (count == MAP_FAILED)
		return 1;
	sigaction(SIGUSR2, &action, NULL);
	for (;; ++*count) {
		const char *state = "counts";

		if (argc < 2)
			state = syscall(SYS_getppid) >= 0 ? "served" : errno == EIO ? "alone" : "wrong";
		snprintf(line, sizeof(line), "%d %s %d\n", *count, state, told);
		if (write(1, line, strlen(line)) < 0)
			return 1;
		nanosleep(&pause, NULL);
	}
}
