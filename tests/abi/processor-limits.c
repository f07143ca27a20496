// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * RLIMIT_CPU and RLIMIT_RTTIME: SIGXCPU comes at the soft limit and each second after that, SIGKILL
 * at the hard one.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "moments.h"

#define MS 1000000L

static volatile int caught;
static volatile long when[8];

static void handler(int signal)
{
	(void)signal;
	if (caught < 8)
		when[caught] = shown(CLOCK_PROCESS_CPUTIME_ID);
	caught++;
}

static void *work(void *argument)
{
	for (;;)
		;
	return argument;
}

static int set(int resource, long soft, long hard)
{
	struct rlimit limit = { soft, hard };

	return setrlimit(resource, &limit);
}

/* Runs this in a child, and returns its wait status. */
static int status_of(void (*child)(void))
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		alarm(0);
		child();
		_exit(100);
	}
	waitpid(pid, &status, 0);
	return status;
}

static int child_ends_by(void (*child)(void), int signal)
{
	int status = status_of(child);

	if (!WIFSIGNALED(status) || WTERMSIG(status) != signal)
		SAY("status %#x", status);
	return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

static void soft(void)
{
	set(RLIMIT_CPU, 1, 100);
	work(NULL);
}

static void hard(void)
{
	signal(SIGXCPU, SIG_IGN);
	set(RLIMIT_CPU, 1, 2);
	work(NULL);
}

/* Works in two threads of a child, whose parent has set the limit. */
static void inherited(void)
{
	pthread_t thread;

	if (fork() == 0) {
		pthread_create(&thread, NULL, work, NULL);
		work(NULL);
	}
	int status;

	wait(&status);
	_exit(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void executes(void)
{
	set(RLIMIT_CPU, 1, 100);
	execl("/proc/self/exe", "again", NULL);
}

static void again_and_again(void)
{
	set(RLIMIT_CPU, 1, 100);
	while (caught < 3)
		;
	/* Each comes after its second; Linux counts that in ticks, which is a sample. */
	for (int i = 0; i < 3; i++) {
		if (when[i] < (i + 1) * 900 * MS || when[i] > 60000 * MS) {
			SAY("signal %d after %ld ms", i + 1, when[i] / MS);
			_exit(1);
		}
	}
	_exit(0);
}

static int become_real_time(int policy)
{
	struct sched_param parameters = { .sched_priority = 5 };

	return sched_setscheduler(0, policy, &parameters);
}

static void watchdog(void)
{
	set(RLIMIT_RTTIME, 200000, RLIM_INFINITY);
	if (become_real_time(SCHED_FIFO) == 0)
		work(NULL);
}

static void watchdog_kills(void)
{
	signal(SIGXCPU, SIG_IGN);
	set(RLIMIT_RTTIME, 100000, 300000);
	if (become_real_time(SCHED_RR) == 0)
		work(NULL);
}

/* Sleeps now and then, and then only gives way. */
static void sleeps(void)
{
	long end;

	set(RLIMIT_RTTIME, 400000, RLIM_INFINITY);
	if (become_real_time(SCHED_FIFO))
		_exit(2);
	for (int round = 0; round < 8; round++) {
		for (end = shown(CLOCK_PROCESS_CPUTIME_ID) + 100 * MS;
		     shown(CLOCK_PROCESS_CPUTIME_ID) < end;)
			;
		if (caught)
			_exit(3);
		pause_for(1);
	}
	end = shown(CLOCK_PROCESS_CPUTIME_ID) + 20000 * MS;
	while (!caught && shown(CLOCK_PROCESS_CPUTIME_ID) < end)
		sched_yield();
	_exit(caught ? 0 : 4);
}

static void ordinary(void)
{
	long end = shown(CLOCK_PROCESS_CPUTIME_ID) + 500 * MS;

	set(RLIMIT_RTTIME, 100000, 200000);
	while (shown(CLOCK_PROCESS_CPUTIME_ID) < end)
		;
	_exit(caught);
}

static void set_by_another(void)
{
	struct rlimit limit = { 1, 100 };
	pid_t pid = fork();
	int status;

	if (pid == 0)
		work(NULL);
	prlimit(pid, RLIMIT_CPU, &limit, NULL);
	wait(&status);
	_exit(WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

/* A program that has the limit of the one before. */
ROLE(again)
{
	work(NULL);
	return 0;
}

BEFORE_EACH
{
	alarm(300);
	caught = 0;
}

CASE(the_soft_limit_ends_a_process)
{
	CHECK(child_ends_by(soft, SIGXCPU));
}

CASE(the_hard_limit_kills_a_process)
{
	CHECK(child_ends_by(hard, SIGKILL));
}

CASE(the_limit_holds_after_execve)
{
	CHECK(child_ends_by(executes, SIGXCPU));
}

CASE(another_process_can_set_the_limit)
{
	CHECK(status_of(set_by_another) == SIGXCPU << 8);
}

CASE(the_soft_limit_ends_a_real_time_thread)
{
	CHECK(child_ends_by(watchdog, SIGXCPU));
}

CASE(the_hard_limit_kills_a_real_time_thread)
{
	CHECK(child_ends_by(watchdog_kills, SIGKILL));
}

CASE(a_handler_is_called_each_second)
{
	signal(SIGXCPU, handler);
	CHECK(status_of(again_and_again) == 0);
}

/* Giving way is no sleep. */
CASE(a_real_time_thread_that_sleeps_begins_anew)
{
	signal(SIGXCPU, handler);
	CHECK(status_of(sleeps) == 0);
}

CASE(the_limit_of_real_time_threads_is_for_them_alone)
{
	signal(SIGXCPU, handler);
	CHECK(status_of(ordinary) == 0);
}

CASE(a_process_has_no_limit_at_first)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_CPU, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY);
}

CASE(a_child_inherits_the_limit_and_has_used_nothing)
{
	CHECK(set(RLIMIT_CPU, 2, RLIM_INFINITY) == 0 && status_of(inherited) == SIGXCPU << 8);
	CHECK(set(RLIMIT_CPU, RLIM_INFINITY, RLIM_INFINITY) == 0);
}
