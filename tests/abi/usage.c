// SPDX-License-Identifier: MIT OR Apache-2.0
/* The processor time of threads and processes: clocks, getrusage and times. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

#define WORK 30000000L /* ns */

static pthread_barrier_t barrier;

/* What a clock shows in nanoseconds, or -1. */
static long now(clockid_t clock)
{
	struct timespec time;

	if (clock_gettime(clock, &time))
		return -1;
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Works for so many nanoseconds. */
static void burn(long nanoseconds)
{
	long end = now(CLOCK_THREAD_CPUTIME_ID) + nanoseconds;

	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

/*
 * Works, and tells how many microseconds were counted. Ends after the second wait at the barrier.
 */
static void *worker(void *argument)
{
	struct rusage usage;

	burn(WORK);
	getrusage(RUSAGE_THREAD, &usage);
	*(long *)argument = usage.ru_utime.tv_sec * 1000000L + usage.ru_utime.tv_usec +
			    usage.ru_stime.tv_sec * 1000000L + usage.ru_stime.tv_usec;
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

/* The time of the user and the system. */
static long microseconds_of(const struct rusage *usage)
{
	return usage->ru_utime.tv_sec * 1000000L + usage->ru_utime.tv_usec +
	       usage->ru_stime.tv_sec * 1000000L + usage->ru_stime.tv_usec;
}

/* The time of children that were waited for, in microseconds. */
static long of_children(void)
{
	struct rusage usage;

	CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0);
	return microseconds_of(&usage);
}

/* Starts a child that works, and has a child of its own that works if `depth` is not 0. */
static pid_t work(int depth)
{
	pid_t pid = fork();

	if (pid == 0) {
		burn(WORK);
		_exit(depth && waitpid(work(depth - 1), NULL, 0) < 0);
	}
	return pid;
}

/* What a child has worked, and a third of it, in microseconds. */
static const long one = WORK / 1000, few = WORK / 3000;

CASE(who_has_waited_for_nobody_has_used_nothing)
{
	CHECK(of_children() < few);
}

/* The time is at least what the child has worked, and at most what has passed, but for a tick. */
CASE(the_time_of_a_child_counts_when_it_was_waited_for)
{
	struct rusage usage;
	siginfo_t information;
	long begin, most, before;
	int status;
	pid_t pid;

	before = of_children();
	begin = now(CLOCK_MONOTONIC);
	pid = work(0);
	CHECK(waitid(P_PID, pid, &information, WEXITED | WNOWAIT) == 0 &&
	      information.si_pid == pid && of_children() < before + few);
	CHECK(wait4(pid, &status, 0, &usage) == pid && status == 0);
	most = (now(CLOCK_MONOTONIC) - begin) / 1000 + few;
	CHECK(microseconds_of(&usage) >= one - few && microseconds_of(&usage) < most &&
	      usage.ru_maxrss > 0);
	CHECK(of_children() >= before + one - few && of_children() < before + most);
}

CASE(the_time_of_grandchildren_counts)
{
	struct rusage usage;
	long before;
	pid_t pid;

	before = of_children();
	pid = work(1);
	CHECK(wait4(pid, NULL, 0, &usage) == pid && microseconds_of(&usage) >= 2 * one - few);
	CHECK(of_children() >= before + 2 * one - few);
}

CASE(waitid_and_times_count_children)
{
	struct rusage usage;
	siginfo_t information;
	struct tms ticks;
	long before;
	pid_t pid;

	before = of_children();
	pid = work(0);
	CHECK(waitid(P_PID, pid, &information, WEXITED) == 0 && information.si_pid == pid &&
	      of_children() >= before + one - few);
	CHECK(times(&ticks) != -1 &&
	      ticks.tms_cutime + ticks.tms_cstime >= (before + one) / 10000 - 1);
	CHECK(wait4(-1, NULL, WNOHANG, &usage) == -1 && errno == ECHILD);
}

CASE(a_stopped_child_is_not_over)
{
	struct rusage usage;
	long before;
	int status;
	pid_t pid;

	before = of_children();
	pid = fork();
	if (pid == 0) {
		burn(WORK);
		raise(SIGSTOP);
		burn(WORK);
		_exit(0);
	}
	CHECK(wait4(pid, &status, WUNTRACED, &usage) == pid && WIFSTOPPED(status) &&
	      of_children() == before);
	CHECK(microseconds_of(&usage) >= one - few);
	kill(pid, SIGCONT);
	CHECK(wait4(pid, &status, 0, &usage) == pid && status == 0 &&
	      of_children() >= before + 2 * one - few);
}

CASE(the_time_of_a_killed_child_counts)
{
	struct rusage usage;
	long before;
	clockid_t of_child;
	int status;
	pid_t pid;

	before = of_children();
	pid = fork();
	if (pid == 0)
		for (;;)
			;
	CHECK(clock_getcpuclockid(pid, &of_child) == 0);
	do
		clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){ 0, WORK / 3 }, NULL);
	while (now(of_child) < WORK);
	kill(pid, SIGKILL);
	CHECK(wait4(pid, &status, 0, &usage) == pid && WIFSIGNALED(status) &&
	      of_children() >= before + one - few);
}

CASE(a_child_that_nobody_waits_for_does_not_count)
{
	long before;

	before = of_children();
	signal(SIGCHLD, SIG_IGN);
	work(0);
	CHECK(wait4(-1, NULL, 0, NULL) == -1 && errno == ECHILD && of_children() == before);
	signal(SIGCHLD, SIG_DFL);
}

/* After execve. */
ROLE(again)
{
	return now(CLOCK_PROCESS_CPUTIME_ID) < WORK || of_children() < WORK / 1500;
}

/* It also keeps the time of children. */
CASE(execve_keeps_the_time)
{
	struct rusage usage;
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		burn(WORK);
		waitpid(work(0), NULL, 0);
		execl("/proc/self/exe", "again", NULL);
		_exit(1);
	}
	CHECK(wait4(pid, &status, 0, &usage) == pid && status == 0 &&
	      microseconds_of(&usage) >= 2 * one - few);
}

CASE(a_thread_has_the_time_that_it_has_worked)
{
	struct timespec resolution;
	clockid_t of_thread;
	long microseconds = 0;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, worker, &microseconds);
	pthread_barrier_wait(&barrier);
	CHECK(microseconds >= WORK / 1000 - 1000);
	CHECK(pthread_getcpuclockid(thread, &of_thread) == 0 && now(of_thread) >= WORK);
	CHECK(clock_getres(of_thread, &resolution) == 0 && resolution.tv_nsec == 1);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
}

CASE(the_process_has_the_time_of_all_threads)
{
	clockid_t of_process;
	long microseconds = 0, own = 0;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, worker, &microseconds);
	pthread_barrier_wait(&barrier);
	own = now(CLOCK_THREAD_CPUTIME_ID);
	CHECK(own < now(CLOCK_PROCESS_CPUTIME_ID) - WORK);
	CHECK(clock_getcpuclockid(0, &of_process) == 0 && now(of_process) >= WORK);
	CHECK(clock_getcpuclockid(getpid(), &of_process) == 0 && now(of_process) >= WORK);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
}

/* The thread may have just begun to wait, so there are some tries. */
CASE(a_thread_that_waits_does_not_work)
{
	struct timespec pause = { 0, 20000000 };
	clockid_t of_thread;
	long microseconds = 0, before, own = 0;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, worker, &microseconds);
	pthread_barrier_wait(&barrier);
	CHECK(pthread_getcpuclockid(thread, &of_thread) == 0);
	for (int tries = 0; tries == 0 || (tries < 10 && own >= 10000000); tries++) {
		before = now(of_thread);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		own = now(of_thread) - before;
	}
	CHECK(own < 10000000);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
}

CASE(the_clock_of_a_thread_ends_with_it)
{
	clockid_t of_thread;
	long microseconds = 0;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, worker, &microseconds);
	pthread_barrier_wait(&barrier);
	CHECK(pthread_getcpuclockid(thread, &of_thread) == 0);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	while (now(of_thread) != -1)
		;
	CHECK(errno == EINVAL);
}

CASE(the_time_of_threads_that_have_ended_stays)
{
	long microseconds = 0, process;
	struct rusage usage;
	struct tms ticks;
	pthread_t thread;

	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, worker, &microseconds);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	process = now(CLOCK_PROCESS_CPUTIME_ID);
	CHECK(process >= WORK);
	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	CHECK(usage.ru_utime.tv_sec * 1000000L + usage.ru_utime.tv_usec +
	      usage.ru_stime.tv_sec * 1000000L + usage.ru_stime.tv_usec >= WORK / 1000 - 10000);
	CHECK(usage.ru_maxrss > 0);
	CHECK(times(&ticks) != -1 && ticks.tms_utime + ticks.tms_stime >= 1);
}

/* The most memory that a process of `who` has had at once, in KiB. */
static long most_memory(int who)
{
	struct rusage usage;

	CHECK(getrusage(who, &usage) == 0);
	return usage.ru_maxrss;
}

#define MUCH 32768L /* KiB */

/* Has much memory for a moment. */
static void fill(void)
{
	void *memory = mmap(NULL, MUCH << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	CHECK(memory != MAP_FAILED);
	memset(memory, 1, MUCH << 10);
	CHECK(munmap(memory, MUCH << 10) == 0);
}

/* Ends with 0 if the program before had much memory. */
ROLE(after_much)
{
	return most_memory(RUSAGE_SELF) < MUCH;
}

CASE(the_most_memory_at_once_counts)
{
	struct rusage usage;
	int status;
	pid_t pid;

	CHECK(most_memory(RUSAGE_SELF) < MUCH && most_memory(RUSAGE_THREAD) < MUCH);
	pid = fork();
	if (pid == 0) {
		fill();
		CHECK(most_memory(RUSAGE_SELF) >= MUCH && most_memory(RUSAGE_SELF) < 2 * MUCH);
		CHECK(most_memory(RUSAGE_THREAD) >= MUCH);
		CHECK(most_memory(RUSAGE_CHILDREN) == 0);
		execl("/proc/self/exe", "after_much", NULL);
		_exit(1);
	}
	CHECK(wait4(pid, &status, 0, &usage) == pid && status == 0);
	CHECK(usage.ru_maxrss >= MUCH && usage.ru_maxrss < 2 * MUCH);
	CHECK(most_memory(RUSAGE_CHILDREN) == usage.ru_maxrss);
	pid = fork();
	if (pid == 0)
		_exit(0);
	CHECK(wait4(pid, &status, 0, &usage) == pid && status == 0);
	CHECK(usage.ru_maxrss > 0 && usage.ru_maxrss < MUCH);
	CHECK(most_memory(RUSAGE_CHILDREN) >= MUCH && most_memory(RUSAGE_SELF) < MUCH);
}

CASE(a_child_has_a_clock_until_it_ends)
{
	struct timespec resolution, pause = { 0, 20000000 };
	clockid_t of_child;
	long before, own = 0;
	pid_t pid;

	before = now(CLOCK_MONOTONIC);
	pid = fork();
	if (pid == 0) {
		burn(WORK / 3);
		kill(getpid(), SIGSTOP);
		_exit(0);
	}
	CHECK(clock_getcpuclockid(pid, &of_child) == 0);
	while (now(of_child) < WORK / 3)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	own = now(of_child);
	CHECK(own < now(CLOCK_MONOTONIC) - before);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (int tries = 0; tries < 1000 && clock_gettime(of_child, &resolution) == 0; tries++)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	FAILS(EINVAL, clock_gettime(of_child, &resolution));
}

CASE(clocks_and_usage_of_nobody_are_refused)
{
	struct timespec resolution;
	struct rusage usage;

	FAILS(EINVAL, clock_gettime(-1, &resolution));
	FAILS(EINVAL, clock_gettime((~1 << 3) | 6, &resolution));
	FAILS(EINVAL, getrusage(17, &usage));
	FAILS(EFAULT, getrusage(RUSAGE_SELF, (void *)8));
}
