// SPDX-License-Identifier: MIT OR Apache-2.0
/* What becomes of timers at execve: the interval timer goes on, timers of timer_create are gone; after one that fails all is as before. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

static sigset_t alarms;

static long microseconds(struct timeval time)
{
	return time.tv_sec * 1000000L + time.tv_usec;
}

static int status(pid_t child)
{
	int result = -1;

	return waitpid(child, &result, 0) == child ? result : -1;
}

/* The timer of this process, for the first time and then each. */
static int start(long first, long each)
{
	struct itimerval timer = { { each / 1000000, each % 1000000 }, { first / 1000000, first % 1000000 } };

	return setitimer(ITIMER_REAL, &timer, NULL);
}

/* After execve: as many alarms come as are said, a time apart. */
static int again(int count)
{
	struct itimerval timer;
	struct itimerspec other;
	siginfo_t info;

	if (timer_gettime((timer_t)0, &other) != -1 || errno != EINVAL)
		return 1;
	if (getitimer(ITIMER_REAL, &timer) || microseconds(timer.it_interval) != (count > 1 ? 30000 : 0))
		return 2;
	if (count == 0)
		return microseconds(timer.it_value) == 0 ? 0 : 3;
	if (count > 100)
		return microseconds(timer.it_value) > 0 && microseconds(timer.it_value) <= 1000L * 1000000 ? 0 : 3;
	for (int i = 0; i < count; i++)
		if (sigwaitinfo(&alarms, &info) != SIGALRM || info.si_code != SI_KERNEL)
			return 4;
	if (getitimer(ITIMER_REAL, &timer) || (microseconds(timer.it_value) > 0) != (count > 1))
		return 5;
	return 0;
}

static void execute(const char *count)
{
	execl("/proc/self/exe", "again", count, NULL);
	_exit(100);
}

int main(int argc, char **argv)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec later = { { 0, 0 }, { 1000, 0 } }, left;
	struct itimerval timer;
	timer_t posix;
	pid_t child;

	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarms, NULL);
	if (argc > 1)
		return again(atoi(argv[1]));
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &posix) == 0 && timer_settime(posix, 0, &later, NULL) == 0);

	/* Periodic, once, long from now, not at all. */
	child = fork();
	if (child == 0) {
		if (timer_create(CLOCK_MONOTONIC, &event, &posix) || timer_settime(posix, 0, &later, NULL) || start(50000, 30000))
			_exit(101);
		execute("3");
	}
	CHECK(status(child) == 0);
	child = fork();
	if (child == 0) {
		start(1000000, 0);
		execute("1");
	}
	CHECK(status(child) == 0);
	child = fork();
	if (child == 0) {
		start(1000L * 1000000, 30000);
		execute("1000");
	}
	CHECK(status(child) == 0);
	child = fork();
	if (child == 0) {
		start(1000L * 1000000, 30000);
		start(0, 0);
		execute("0");
	}
	CHECK(status(child) == 0);

	/* By default its signal ends the program. */
	child = fork();
	if (child == 0) {
		sigprocmask(SIG_UNBLOCK, &alarms, NULL);
		start(300000, 0);
		execl("/bin/sleep", "sleep", "1000", NULL);
		_exit(100);
	}
	CHECK(status(child) == SIGALRM);

	/* After one that fails. */
	CHECK(start(1000L * 1000000, 30000) == 0);
	FAILS(ENOENT, execl("/no/such/program", "none", NULL));
	CHECK(getitimer(ITIMER_REAL, &timer) == 0 && microseconds(timer.it_interval) == 30000 && microseconds(timer.it_value) > 900L * 1000000);
	CHECK(timer_gettime(posix, &left) == 0 && left.it_value.tv_sec > 900 && start(20000, 0) == 0);
	FAILS(ENOENT, execl("/no/such/program", "none", NULL));
	CHECK(sigwaitinfo(&alarms, NULL) == SIGALRM && start(0, 0) == 0);
	return finish();
}
