// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Tells on its standard output every 50 ms whether Linux serves it, and of each SIGUSR2, whose
 * handler it has. It never asks Linux with an argument "alone".
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
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

	sigaction(SIGUSR2, &action, NULL);
	for (int i = 0;; i++) {
		const char *state = "counts";

		if (argc < 2)
			state = syscall(SYS_getppid) >= 0 ? "served" : errno == EIO ? "alone" : "wrong";
		snprintf(line, sizeof(line), "%d %s %d\n", i, state, told);
		if (write(1, line, strlen(line)) < 0)
			return 1;
		nanosleep(&pause, NULL);
	}
}
