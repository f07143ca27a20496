// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Signals that are pending at execve, or come meanwhile, are the new program's; those of timers are
 * not.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "children.h"

static sigset_t mask;

/* Takes a signal that is pending. */
static int take(siginfo_t *info)
{
	return sigtimedwait(&mask, info, &(struct timespec){ 0, 0 });
}

/* The signals of this test. */
static void set_mask(void)
{
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGALRM);
	sigaddset(&mask, SIGRTMIN);
}

/*
 * What was pending before execve is pending after it, and nothing else. The argument is the
 * parent's id.
 */
ROLE(again)
{
	siginfo_t info;
	sigset_t pending;

	set_mask();
	sigpending(&pending);
	if (!sigismember(&pending, SIGUSR1) || !sigismember(&pending, SIGTERM) ||
	    sigismember(&pending, SIGALRM))
		return 1;
	if (take(&info) != SIGUSR1 || info.si_code != SI_USER || info.si_pid != getpid())
		return 2;
	if (take(&info) != SIGTERM || info.si_code != SI_USER || count != 2 ||
	    info.si_pid != atoi(arguments[1]))
		return 3;
	for (int i = 0; i < 3; i++)
		if (take(&info) != SIGRTMIN || info.si_code != SI_QUEUE ||
		    info.si_value.sival_int != 10 + i)
			return 4;
	return take(&info) == -1 ? 0 : 5;
}

ROLE(waiting)
{
	for (;;)
		pause();
	return 0;
}

static int does_nothing_on(int number)
{
	struct sigaction action;

	return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* SIGUSR2 and SIGCONT are ignored, as before execve. */
ROLE(ignoring)
{
	return count == 1 && arguments[0] && does_nothing_on(SIGUSR2) &&
	       does_nothing_on(SIGCONT) && raise(SIGUSR2) == 0 ? 0 : 1;
}

BEFORE_EACH
{
	set_mask();
	sigprocmask(SIG_BLOCK, &mask, NULL);
}

CASE(pending_signals_stay_but_those_of_timers)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
	struct itimerspec soon = { { 0, 0 }, { 0, 1 } };
	char parent[20];
	timer_t timer;

	snprintf(parent, sizeof(parent), "%d", getpid());
	pid_t child = fork();

	if (child == 0) {
		raise(SIGUSR1);
		for (int i = 0; i < 3; i++)
			sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 10 + i });
		if (timer_create(CLOCK_MONOTONIC, &event, &timer) ||
		    timer_settime(timer, 0, &soon, NULL))
			_exit(99);
		sigset_t pending;

		do
			sigpending(&pending);
		while (!sigismember(&pending, SIGALRM) || !sigismember(&pending, SIGTERM));
		execl("/does/not/exist", "again", NULL);
		execl("/proc/self/exe", "again", parent, NULL);
		_exit(100);
	}
	kill(child, SIGTERM);
	CHECK(status_of(child) == 0);
}

CASE(an_execve_that_fails_leaves_all_pending)
{
	siginfo_t info;

	raise(SIGUSR1);
	sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 7 });
	FAILS(ENOENT, execl("/does/not/exist", "again", NULL));
	CHECK(take(&info) == SIGUSR1 && info.si_code == SI_USER);
	CHECK(take(&info) == SIGRTMIN && info.si_value.sival_int == 7 && take(&info) == -1);
}

static void *sleep_here(void *argument)
{
	(void)argument;
	pthread_sigmask(SIG_UNBLOCK, &mask, NULL);
	for (;;)
		pause();
	return NULL;
}

static volatile sig_atomic_t handled;

static void note(int number)
{
	handled = number;
}

/* The other thread would take what is sent to the process. */
CASE(an_execve_that_fails_leaves_what_is_the_threads)
{
	pthread_t thread;
	siginfo_t info;

	signal(SIGUSR1, note);
	CHECK(pthread_create(&thread, NULL, sleep_here, NULL) == 0);
	usleep(20000);
	handled = 0;
	CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
	FAILS(ENOENT, execl("/does/not/exist", "again", NULL));
	usleep(50000);
	CHECK(handled == 0 && take(&info) == SIGUSR1 && info.si_code == SI_USER);
	pthread_cancel(thread);
	pthread_join(thread, NULL);
}

CASE(an_execve_that_fails_leaves_what_timers_have_sent)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN,
				  .sigev_value = { .sival_int = 5 } };
	struct itimerspec soon = { { 0, 0 }, { 0, 1 } };
	siginfo_t info;
	timer_t timer;

	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 &&
	      timer_settime(timer, 0, &soon, NULL) == 0);
	usleep(20000);
	FAILS(ENOENT, execl("/does/not/exist", "again", NULL));
	CHECK(take(&info) == SIGRTMIN && info.si_code == SI_TIMER && info.si_value.sival_int == 5);
	CHECK(take(&info) == -1 && timer_delete(timer) == 0);
}

/* Also what was blocked meanwhile; and what execve cannot find changes nothing. */
CASE(what_is_ignored_stays_ignored)
{
	pid_t child = fork();

	if (child == 0) {
		sigset_t all, pending;

		setpgid(0, 0);
		signal(SIGUSR2, SIG_IGN);
		signal(SIGCONT, SIG_IGN);
		sigfillset(&all);
		sigprocmask(SIG_BLOCK, &all, &mask);
		execl("/does/not/exist", "ignoring", NULL);
		/* By way of the group. */
		kill(0, SIGUSR2);
		do
			sigpending(&pending);
		while (!sigismember(&pending, SIGUSR2));
		sigprocmask(SIG_SETMASK, &mask, NULL);
		execl("/proc/self/exe", "ignoring", NULL);
		_exit(100);
	}
	CHECK(status_of(child) == 0);
}

/* The signals come at many moments. */
CASE(no_signal_is_lost_during_execve)
{
	pid_t child;
	int right = 1;

	sigprocmask(SIG_UNBLOCK, &mask, NULL);
	for (int i = 0; i < 60; i++) {
		struct timespec moment = { 0, i % 30 * 200000 };

		child = fork();
		if (child == 0) {
			execl("/proc/self/exe", "waiting", NULL);
			_exit(100);
		}
		nanosleep(&moment, NULL);
		kill(child, i % 2 ? SIGTERM : SIGRTMIN + 3);
		right &= status_of(child) == (i % 2 ? SIGTERM : SIGRTMIN + 3);
	}
	CHECK(right);
}
