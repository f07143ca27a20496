// SPDX-License-Identifier: MIT OR Apache-2.0
/* Signals that are pending at execve, or come meanwhile, are the new program's; those of timers are not. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static sigset_t mask;

static int take(siginfo_t *info)
{
	return sigtimedwait(&mask, info, &(struct timespec){ 0, 0 });
}

/* After execve: what was pending, and nothing else. */
static int again(const char *parent)
{
	siginfo_t info;
	sigset_t pending;

	sigpending(&pending);
	if (!sigismember(&pending, SIGUSR1) || !sigismember(&pending, SIGTERM) || sigismember(&pending, SIGALRM))
		return 1;
	if (take(&info) != SIGUSR1 || info.si_code != SI_USER || info.si_pid != getpid())
		return 2;
	if (take(&info) != SIGTERM || info.si_code != SI_USER || info.si_pid != atoi(parent))
		return 3;
	for (int i = 0; i < 3; i++)
		if (take(&info) != SIGRTMIN || info.si_code != SI_QUEUE || info.si_value.sival_int != 10 + i)
			return 4;
	return take(&info) == -1 ? 0 : 5;
}

static int status(pid_t child)
{
	int result = -1;

	return waitpid(child, &result, 0) == child ? result : -1;
}

int main(int argc, char **argv)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	struct itimerspec soon = { { 0, 0 }, { 0, 1 } };
	char parent[20];
	siginfo_t info;
	timer_t timer;
	int right = 1;

	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGALRM);
	sigaddset(&mask, SIGRTMIN);
	if (argc == 3)
		return again(argv[2]);
	if (argc == 2)
		for (;;)
			pause();

	snprintf(parent, sizeof(parent), "%d", getpid());
	sigprocmask(SIG_BLOCK, &mask, NULL);
	pid_t child = fork();

	if (child == 0) {
		raise(SIGUSR1);
		for (int i = 0; i < 3; i++)
			sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 10 + i });
		if (timer_create(CLOCK_MONOTONIC, &event, &timer) || timer_settime(timer, 0, &soon, NULL))
			_exit(99);
		sigset_t pending;

		do
			sigpending(&pending);
		while (!sigismember(&pending, SIGALRM) || !sigismember(&pending, SIGTERM));
		execl("/does/not/exist", "again", NULL);
		execl("/proc/self/exe", "again", "with", parent, NULL);
		_exit(100);
	}
	kill(child, SIGTERM);
	CHECK(status(child) == 0);

	/* After an execve that fails all is pending as before. */
	raise(SIGUSR1);
	sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 7 });
	FAILS(ENOENT, execl("/does/not/exist", "again", NULL));
	CHECK(take(&info) == SIGUSR1 && info.si_code == SI_USER);
	CHECK(take(&info) == SIGRTMIN && info.si_value.sival_int == 7 && take(&info) == -1);
	sigprocmask(SIG_UNBLOCK, &mask, NULL);

	/* At whatever moment it comes, a signal does not get lost. */
	for (int i = 0; i < 60; i++) {
		struct timespec moment = { 0, i % 30 * 200000 };

		child = fork();
		if (child == 0) {
			execl("/proc/self/exe", "again", "waiting", NULL);
			_exit(100);
		}
		nanosleep(&moment, NULL);
		kill(child, i % 2 ? SIGTERM : SIGRTMIN + 3);
		right &= status(child) == (i % 2 ? SIGTERM : SIGRTMIN + 3);
	}
	CHECK(right);
	return finish();
}
