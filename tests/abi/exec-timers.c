// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Timers at execve: the interval timer goes on, those of timer_create are gone. After an execve
 * that fails all is as before.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "children.h"

static sigset_t alarms;

static long microseconds(struct timeval time)
{
	return time.tv_sec * 1000000L + time.tv_usec;
}

/* Of timer_create, none of which is left after execve. */
static struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
static struct itimerspec later = { { 0, 0 }, { 1000, 0 } };

/* Sets the interval timer of this process, in microseconds. */
static int start(long first, long each)
{
	struct itimerval timer = { { each / 1000000, each % 1000000 },
				   { first / 1000000, first % 1000000 } };

	return setitimer(ITIMER_REAL, &timer, NULL);
}

static void block_alarms(void)
{
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarms, NULL);
}

/*
 * After execve as many alarms come as the argument says, a time apart. More than 100 are far away.
 */
ROLE(again)
{
	int alarms_to_come = atoi(arguments[1]);
	struct itimerval timer;
	struct itimerspec other;
	siginfo_t info;

	block_alarms();
	if (timer_gettime((timer_t)0, &other) != -1 || errno != EINVAL)
		return 1;
	if (getitimer(ITIMER_REAL, &timer) ||
	    microseconds(timer.it_interval) != (alarms_to_come > 1 ? 30000 : 0))
		return 2;
	if (alarms_to_come == 0)
		return microseconds(timer.it_value) == 0 ? 0 : 3;
	if (alarms_to_come > 100)
		return microseconds(timer.it_value) > 0 &&
			       microseconds(timer.it_value) <= 1000L * 1000000 ? 0 : 3;
	for (int i = 0; i < alarms_to_come; i++)
		if (sigwaitinfo(&alarms, &info) != SIGALRM || info.si_code != SI_KERNEL)
			return 4;
	if (getitimer(ITIMER_REAL, &timer) ||
	    (microseconds(timer.it_value) > 0) != (alarms_to_come > 1))
		return 5;
	return 0;
}

static void execute(const char *count)
{
	execl("/proc/self/exe", "again", count, NULL);
	_exit(100);
}

BEFORE_EACH
{
	block_alarms();
}

/* A timer of timer_create is gone. */
CASE(a_periodic_interval_timer_goes_on)
{
	timer_t posix;
	pid_t child;

	CHECK(timer_create(CLOCK_MONOTONIC, &event, &posix) == 0 &&
	      timer_settime(posix, 0, &later, NULL) == 0);
	child = fork();
	if (child == 0) {
		if (timer_create(CLOCK_MONOTONIC, &event, &posix) ||
		    timer_settime(posix, 0, &later, NULL) || start(50000, 30000))
			_exit(101);
		execute("3");
	}
	CHECK(status_of(child) == 0);
}

CASE(a_single_interval_timer_goes_on)
{
	pid_t child;

	child = fork();
	if (child == 0) {
		start(1000000, 0);
		execute("1");
	}
	CHECK(status_of(child) == 0);
}

CASE(a_far_interval_timer_goes_on)
{
	pid_t child;

	child = fork();
	if (child == 0) {
		start(1000L * 1000000, 30000);
		execute("1000");
	}
	CHECK(status_of(child) == 0);
}

CASE(a_stopped_interval_timer_stays_stopped)
{
	pid_t child;

	child = fork();
	if (child == 0) {
		start(1000L * 1000000, 30000);
		start(0, 0);
		execute("0");
	}
	CHECK(status_of(child) == 0);
}

CASE(the_signal_ends_the_new_program)
{
	pid_t child;

	child = fork();
	if (child == 0) {
		sigprocmask(SIG_UNBLOCK, &alarms, NULL);
		start(300000, 0);
		execl("/bin/sleep", "sleep", "1000", NULL);
		_exit(100);
	}
	CHECK(status_of(child) == SIGALRM);
}

CASE(an_execve_that_fails_leaves_the_timers_alone)
{
	struct itimerspec later = { { 0, 0 }, { 1000, 0 } }, left;
	struct itimerval timer;
	timer_t posix;

	CHECK(timer_create(CLOCK_MONOTONIC, &event, &posix) == 0 &&
	      timer_settime(posix, 0, &later, NULL) == 0);
	CHECK(start(1000L * 1000000, 30000) == 0);
	FAILS(ENOENT, execl("/no/such/program", "none", NULL));
	CHECK(getitimer(ITIMER_REAL, &timer) == 0 && microseconds(timer.it_interval) == 30000 &&
	      microseconds(timer.it_value) > 900L * 1000000);
	CHECK(timer_gettime(posix, &left) == 0 && left.it_value.tv_sec > 900 &&
	      start(20000, 0) == 0);
	FAILS(ENOENT, execl("/no/such/program", "none", NULL));
	CHECK(sigwaitinfo(&alarms, NULL) == SIGALRM && start(0, 0) == 0);
	timer_delete(posix);
}
