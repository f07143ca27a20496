// SPDX-License-Identifier: MIT OR Apache-2.0
/* Waiting for blocked signals by sigwait, sigwaitinfo and sigtimedwait. Queues and their limit. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "moments.h"

static volatile sig_atomic_t count;

static void note(int number)
{
	(void)number;
	count++;
}

/* Has SIGALRM come after some milliseconds, and then each `interval`. */
static void alarm_in(int milliseconds, int interval)
{
	struct itimerval timer = { { 0, interval * 1000 }, { 0, milliseconds * 1000 } };

	setitimer(ITIMER_REAL, &timer, NULL);
}

static const struct timespec none = { 0, 0 };
static sigset_t set;

BEFORE_EACH
{
	count = 0;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN + 1);
	sigaddset(&set, SIGRTMIN + 2);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGALRM, note);
}

CASE(a_wait_without_a_signal_ends_in_time)
{
	struct timespec some = { 0, 50000000 };
	siginfo_t info;
	long start;

	FAILS(EAGAIN, sigtimedwait(&set, NULL, &none));
	start = milliseconds();
	FAILS(EAGAIN, sigtimedwait(&set, &info, &some));
	CHECK(milliseconds() - start >= 49);
}

CASE(bad_waits_are_refused)
{
	struct timespec bad = { 0, 1000000000 };
	siginfo_t info;

	FAILS(EINVAL, sigtimedwait(&set, &info, &bad));
	FAILS(EINVAL, syscall(SYS_rt_sigtimedwait, &set, NULL, &none, 4));
	FAILS(EFAULT, syscall(SYS_rt_sigtimedwait, (void *)8, NULL, &none, 8));
	FAILS(EFAULT, syscall(SYS_rt_sigtimedwait, &set, NULL, (void *)8, 8));
}

CASE(a_standard_signal_waits_once)
{
	sigset_t pending;
	siginfo_t info;

	raise(SIGUSR1);
	raise(SIGUSR1);
	CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) &&
	      !sigismember(&pending, SIGALRM));
	CHECK(sigwaitinfo(&set, &info) == SIGUSR1 && info.si_pid == getpid());
	CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGUSR1));
	FAILS(EAGAIN, sigtimedwait(&set, NULL, &none));
}

CASE(bad_looks_at_what_is_pending_are_refused)
{
	sigset_t pending;

	FAILS(EFAULT, syscall(SYS_rt_sigpending, (void *)8, 8));
	FAILS(EINVAL, syscall(SYS_rt_sigpending, &pending, 16));
}

CASE(queued_signals_come_in_their_order)
{
	union sigval value;
	siginfo_t info;
	int number, i;

	for (i = 0; i < 5; i++) {
		value.sival_int = i;
		sigqueue(getpid(), SIGRTMIN + 2, value);
		sigqueue(getpid(), SIGRTMIN + 1, value);
	}
	raise(SIGUSR1);
	CHECK(sigwait(&set, &number) == 0 && number == SIGUSR1);
	for (i = 0; i < 10; i++)
		CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1 + i / 5 &&
		      info.si_value.sival_int == i % 5);
	FAILS(EAGAIN, sigtimedwait(&set, NULL, &none));
}

/* The signal comes again and again, because the first may come before the wait begins. */
CASE(a_handler_of_another_signal_ends_a_wait)
{
	struct timespec late = { 60, 0 };

	alarm_in(30, 30);
	FAILS(EINTR, sigtimedwait(&set, NULL, &late));
	alarm_in(0, 0);
	CHECK(count > 0);
}

/* The signal comes during the wait. */
CASE(a_signal_of_the_set_is_taken_not_handled)
{
	struct timespec late = { 60, 0 };
	siginfo_t info;

	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	count = 0;
	alarm_in(30, 0);
	CHECK(sigtimedwait(&set, &info, &late) == SIGALRM && info.si_code == SI_KERNEL &&
	      count == 0);
}

/* The default of SIGCHLD is to do nothing. */
CASE(a_blocked_sigchld_waits)
{
	siginfo_t info;
	pid_t child;
	int status;

	child = fork();
	if (child == 0)
		_exit(7);
	CHECK(sigwaitinfo(&set, &info) == SIGCHLD && info.si_pid == child && info.si_status == 7);
	CHECK(waitpid(child, &status, 0) == child);
}

CASE(another_process_ends_a_wait)
{
	union sigval value;
	siginfo_t info;
	pid_t child;
	int status;

	child = fork();
	if (child == 0) {
		usleep(20000);
		value.sival_int = 99;
		sigqueue(getppid(), SIGRTMIN + 1, value);
		pause();
	}
	CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1 && info.si_value.sival_int == 99 &&
	      info.si_pid == child);
	CHECK(kill(child, SIGTERM) == 0);
	CHECK(sigwaitinfo(&set, &info) == SIGCHLD && info.si_code == CLD_KILLED);
	CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGTERM);
}

CASE(what_is_pending_is_not_inherited)
{
	sigset_t pending;
	pid_t child;
	int status;

	raise(SIGUSR1);
	child = fork();
	if (child == 0)
		_exit(sigpending(&pending) != 0 || sigismember(&pending, SIGUSR1));
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

CASE(what_is_pending_is_gone_when_it_is_ignored)
{
	sigset_t pending;

	raise(SIGUSR1);
	signal(SIGUSR1, SIG_IGN);
	CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGUSR1));
	signal(SIGUSR1, SIG_DFL);
}

CASE(the_default_action_waits_until_the_signal_is_unblocked)
{
	sigset_t all;
	pid_t child;
	int status;

	child = fork();
	if (child == 0) {
		raise(SIGUSR1);
		sigfillset(&all);
		sigprocmask(SIG_UNBLOCK, &all, NULL);
		_exit(3);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
	      WTERMSIG(status) == SIGUSR1);
}

/*
 * A real-time signal with a value counts. Other processes of this user may have signals in the
 * queue.
 */
CASE(the_queue_has_a_limit)
{
	struct rlimit limit;
	union sigval value;
	siginfo_t info;
	int i;

	value.sival_int = 99;
	CHECK(getrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	limit.rlim_cur = 50;
	CHECK(setrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	for (i = 0; i < 51; i++)
		if (sigqueue(getpid(), SIGRTMIN + 1, value) != 0)
			break;
	CHECK(i > 0 && i <= 50 && errno == EAGAIN);
	CHECK(sigqueue(getpid(), SIGUSR1, value) == 0 && kill(getpid(), SIGRTMIN + 2) == 0);
	CHECK(sigwaitinfo(&set, &info) == SIGUSR1);
	CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1 &&
	      info.si_value.sival_int == value.sival_int);
	while (sigtimedwait(&set, &info, &none) == SIGRTMIN + 1)
		i--;
	CHECK(i == 1 && info.si_signo == SIGRTMIN + 2 && info.si_code == SI_USER);
	FAILS(EAGAIN, sigtimedwait(&set, NULL, &none));
}
