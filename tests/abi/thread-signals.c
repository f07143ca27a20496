// SPDX-License-Identifier: MIT OR Apache-2.0
/* Signals and threads: to one thread, to the process, which thread takes them, masks, waiting, timers. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define THREADS 4

static atomic_int count, taker, ready, stop;
static pthread_t threads[THREADS];
static atomic_int tids[THREADS];

static int own_tid(void)
{
	return (int)syscall(SYS_gettid);
}

static void note(int number)
{
	(void)number;
	taker = own_tid();
	count++;
}

static void wait_for(atomic_int *what, int value)
{
	while (*what < value)
		usleep(1000);
}

/* Computes or sleeps with the mask that it was started with, until told to stop. */
static void *run(void *argument)
{
	long index = (long)argument;

	tids[index] = own_tid();
	ready++;
	while (!stop) {
		if (index % 2)
			usleep(1000000);
	}
	return NULL;
}

static void *wait_here(void *argument)
{
	sigset_t *set = argument;
	siginfo_t info;

	tids[0] = own_tid();
	ready++;
	if (sigwaitinfo(set, &info) != SIGUSR2)
		return (void *)1;
	ready++;
	if (sigwaitinfo(set, &info) != SIGRTMIN || info.si_value.sival_int != 5)
		return (void *)2;
	return NULL;
}

static void *read_here(void *argument)
{
	int *ends = argument;
	char byte;

	tids[0] = own_tid();
	ready++;
	errno = 0;
	if (read(ends[0], &byte, 1) != -1 || errno != EINTR)
		return (void *)1;
	return NULL;
}

static void start(int index, void *(*body)(void *), void *argument)
{
	int before = ready;

	CHECK(pthread_create(&threads[index], NULL, body, argument) == 0);
	wait_for(&ready, before + 1);
	usleep(20000);
}

int main(void)
{
	struct sigaction action = { .sa_handler = note };
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1 };
	struct itimerspec spec = { .it_value = { 0, 10000000 } };
	sigset_t set, old, pending;
	union sigval value;
	timer_t timer;
	int ends[2], status;
	void *result;
	pid_t child;
	long i;

	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGUSR2, &action, NULL);

	/* To one thread, computing or asleep. */
	for (i = 0; i < THREADS; i++)
		start(i, run, (void *)i);
	for (i = 0; i < THREADS; i++) {
		CHECK(pthread_kill(threads[i], SIGUSR1) == 0);
		wait_for(&count, i + 1);
		CHECK(taker == tids[i]);
	}
	FAILS(ESRCH, syscall(SYS_tgkill, getppid(), tids[0], SIGUSR1));
	/* A timer of one thread. */
	event.sigev_notify_thread_id = tids[2];
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &spec, NULL) == 0);
	wait_for(&count, THREADS + 1);
	CHECK(taker == tids[2]);
	timer_delete(timer);

	/* To the process: the first thread, or one that does not block it. */
	count = 0;
	CHECK(kill(getpid(), SIGUSR1) == 0);
	wait_for(&count, 1);
	CHECK(taker == getpid());
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &set, &old);
	CHECK(kill(getpid(), SIGUSR1) == 0);
	wait_for(&count, 2);
	CHECK(taker != getpid());
	/* To a thread that blocks it: there it stays. */
	CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0);
	usleep(20000);
	CHECK(count == 2 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	CHECK(count == 3 && taker == getpid());
	stop = 1;
	for (i = 0; i < THREADS; i++) {
		if (i % 2)
			pthread_kill(threads[i], SIGUSR2);
		CHECK(pthread_join(threads[i], NULL) == 0);
	}

	/* A thread waits while all block. */
	sigaddset(&set, SIGUSR2);
	sigaddset(&set, SIGRTMIN);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	start(0, wait_here, &set);
	CHECK(kill(getpid(), SIGUSR2) == 0);
	wait_for(&ready, THREADS + 2);
	value.sival_int = 5;
	CHECK(pthread_sigqueue(threads[0], SIGRTMIN, value) == 0);
	CHECK(pthread_join(threads[0], &result) == 0 && result == NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);

	/* A system call of one thread ends, the others go on. */
	CHECK(pipe(ends) == 0);
	start(0, read_here, ends);
	count = 0;
	CHECK(pthread_kill(threads[0], SIGUSR1) == 0);
	/* Again and again: the first may come before the call begins. */
	while (pthread_tryjoin_np(threads[0], &result) != 0) {
		usleep(20000);
		pthread_kill(threads[0], SIGUSR1);
	}
	CHECK(result == NULL && count > 0 && taker != getpid());

	/* The default action ends all threads; a stopped process goes on when it is told to. */
	child = fork();
	if (child == 0) {
		stop = 0;
		for (i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, run, (void *)i);
		pause();
		_exit(0);
	}
	usleep(100000);
	CHECK(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child);
	CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	CHECK(kill(child, SIGCONT) == 0 && waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
	CHECK(kill(child, SIGTERM) == 0 && waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	return finish();
}
