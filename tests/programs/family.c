// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Sleeps a millisecond at a time, and on SIGUSR2 starts a thread, forks a child that executes
 * /bin/true, and tells whether all of that went well. With an argument it never sleeps. SIGTERM
 * ends it.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t asked, over;

static void on_signal(int signal)
{
	if (signal == SIGTERM)
		over = 1;
	else
		asked = 1;
}

static void *run(void *ran)
{
	*(int *)ran = 1;
	return NULL;
}

static int grow(void)
{
	pthread_t thread;
	int ran = 0, status;
	pid_t child;

	if (pthread_create(&thread, NULL, run, &ran) || pthread_join(thread, NULL) || !ran)
		return 0;
	child = fork();
	if (child == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	return waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
	struct timespec pause = { 0, 1000000 };

	signal(SIGTERM, on_signal);
	signal(SIGUSR2, on_signal);
	printf("begins\n");
	fflush(stdout);
	while (!over) {
		if (argc == 1)
			nanosleep(&pause, NULL);
		if (asked) {
			asked = 0;
			printf("%s\n", grow() ? "grew" : "did not grow");
			fflush(stdout);
		}
	}
	return 0;
}
