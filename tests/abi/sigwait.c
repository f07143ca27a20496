// SPDX-License-Identifier: MIT OR Apache-2.0
/* Waiting for blocked signals: sigwait, sigwaitinfo, sigtimedwait, sigpending; queues and their limit. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

static volatile sig_atomic_t count;

static void note(int number)
{
	(void)number;
	count++;
}

static long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* SIGALRM after some milliseconds, and then each `interval`. */
static void alarm_in(int milliseconds, int interval)
{
	struct itimerval timer = { { 0, interval * 1000 }, { 0, milliseconds * 1000 } };

	setitimer(ITIMER_REAL, &timer, NULL);
}

int main(void)
{
	struct timespec none = { 0, 0 }, some = { 0, 50000000 }, bad = { 0, 1000000000 };
	struct timespec late = { 60, 0 };
	struct rlimit limit;
	union sigval value;
	sigset_t set, pending, all;
	siginfo_t info;
	long start;
	pid_t child;
	int number, i, status;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN + 1);
	sigaddset(&set, SIGRTMIN + 2);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGALRM, note);

	FAILS(EAGAIN, sigtimedwait(&set, NULL, &none));
	start = milliseconds();
	FAILS(EAGAIN, sigtimedwait(&set, &info, &some));
	CHECK(milliseconds() - start >= 49);
	FAILS(EINVAL, sigtimedwait(&set, &info, &bad));
	FAILS(EINVAL, syscall(SYS_rt_sigtimedwait, &set, NULL, &none, 4));
	FAILS(EFAULT, syscall(SYS_rt_sigtimedwait, (void *)8, NULL, &none, 8));
	FAILS(EFAULT, syscall(SYS_rt_sigtimedwait, &set, NULL, (void *)8, 8));

	raise(SIGUSR1);
	raise(SIGUSR1);
	CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) && !sigismember(&pending, SIGALRM));
	CHECK(sigwaitinfo(&set, &info) == SIGUSR1 && info.si_pid == getpid());
	CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGUSR1));
	FAILS(EAGAIN, sigtimedwait(&set, NULL, &none));
	FAILS(EFAULT, syscall(SYS_rt_sigpending, (void *)8, 8));
	FAILS(EINVAL, syscall(SYS_rt_sigpending, &pending, 16));

	for (i = 0; i < 5; i++) {
		value.sival_int = i;
		sigqueue(getpid(), SIGRTMIN + 2, value);
		sigqueue(getpid(), SIGRTMIN + 1, value);
	}
	raise(SIGUSR1);
	CHECK(sigwait(&set, &number) == 0 && number == SIGUSR1);
	for (i = 0; i < 10; i++)
		CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1 + i / 5 && info.si_value.sival_int == i % 5);
	FAILS(EAGAIN, sigtimedwait(&set, NULL, &none));

	/* Another signal with a handler ends the wait. Again and again: the first may come before that begins. */
	alarm_in(30, 30);
	FAILS(EINTR, sigtimedwait(&set, NULL, &late));
	alarm_in(0, 0);
	CHECK(count > 0);
	/* One of the set that comes while waiting. */
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	count = 0;
	alarm_in(30, 0);
	CHECK(sigtimedwait(&set, &info, &late) == SIGALRM && info.si_code == SI_KERNEL && count == 0);

	/* A blocked SIGCHLD waits although its default is to do nothing. */
	child = fork();
	if (child == 0)
		_exit(7);
	CHECK(sigwaitinfo(&set, &info) == SIGCHLD && info.si_pid == child && info.si_status == 7);
	CHECK(waitpid(child, &status, 0) == child);
	/* From another process, while waiting. */
	child = fork();
	if (child == 0) {
		usleep(20000);
		value.sival_int = 99;
		sigqueue(getppid(), SIGRTMIN + 1, value);
		pause();
	}
	CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1 && info.si_value.sival_int == 99 && info.si_pid == child);
	CHECK(kill(child, SIGTERM) == 0);
	CHECK(sigwaitinfo(&set, &info) == SIGCHLD && info.si_code == CLD_KILLED);
	CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGTERM);

	/* What is pending survives neither fork ... */
	raise(SIGUSR1);
	child = fork();
	if (child == 0)
		_exit(sigpending(&pending) != 0 || sigismember(&pending, SIGUSR1));
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	/* ... nor being ignored. */
	signal(SIGUSR1, SIG_IGN);
	CHECK(sigpending(&pending) == 0 && !sigismember(&pending, SIGUSR1));
	signal(SIGUSR1, SIG_DFL);
	while (sigtimedwait(&set, &info, &none) > 0)
		;

	/* The default action waits until the signal is unblocked. */
	child = fork();
	if (child == 0) {
		raise(SIGUSR1);
		sigfillset(&all);
		sigprocmask(SIG_UNBLOCK, &all, NULL);
		_exit(3);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1);
	while (sigtimedwait(&set, &info, &none) > 0)
		;

	/* The limit counts for real-time signals with a value. */
	CHECK(getrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	limit.rlim_cur = 50;
	CHECK(setrlimit(RLIMIT_SIGPENDING, &limit) == 0);
	/* Others of this user may have some, too. */
	for (i = 0; i < 51; i++)
		if (sigqueue(getpid(), SIGRTMIN + 1, value) != 0)
			break;
	CHECK(i > 0 && i <= 50 && errno == EAGAIN);
	CHECK(sigqueue(getpid(), SIGUSR1, value) == 0 && kill(getpid(), SIGRTMIN + 2) == 0);
	CHECK(sigwaitinfo(&set, &info) == SIGUSR1);
	CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1 && info.si_value.sival_int == value.sival_int);
	while (sigtimedwait(&set, &info, &none) == SIGRTMIN + 1)
		i--;
	CHECK(i == 1 && info.si_signo == SIGRTMIN + 2 && info.si_code == SI_USER);
	FAILS(EAGAIN, sigtimedwait(&set, NULL, &none));
	return finish();
}
