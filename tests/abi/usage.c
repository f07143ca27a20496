// SPDX-License-Identifier: MIT OR Apache-2.0
/* Processor time of threads and processes: clocks, getrusage, times. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/times.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"

#define WORK 30000000L /* ns */

static pthread_barrier_t barrier;

static long now(clockid_t clock)
{
	struct timespec time;

	if (clock_gettime(clock, &time))
		return -1;
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void burn(long nanoseconds)
{
	long end = now(CLOCK_THREAD_CPUTIME_ID) + nanoseconds;

	while (now(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

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

static long microseconds_of(const struct rusage *usage)
{
	return usage->ru_utime.tv_sec * 1000000L + usage->ru_utime.tv_usec +
	       usage->ru_stime.tv_sec * 1000000L + usage->ru_stime.tv_usec;
}

static long of_children(void)
{
	struct rusage usage;

	CHECK(getrusage(RUSAGE_CHILDREN, &usage) == 0);
	return microseconds_of(&usage);
}

/* A child that works, and has a child of its own that works if `depth` is not 0. */
static pid_t work(int depth)
{
	pid_t pid = fork();

	if (pid == 0) {
		burn(WORK);
		_exit(depth && waitpid(work(depth - 1), NULL, 0) < 0);
	}
	return pid;
}

/* Processor time of children that were waited for, by all ways to wait. */
static void children(void)
{
	const long one = WORK / 1000, few = one / 3;
	struct rusage usage;
	siginfo_t information;
	struct tms ticks;
	long before = of_children(), begin, most;
	clockid_t of_child;
	int status;
	pid_t pid;

	CHECK(before < few);
	/* As much as it has worked, and not more than has passed, but for a tick. */
	begin = now(CLOCK_MONOTONIC);
	pid = work(0);
	CHECK(waitid(P_PID, pid, &information, WEXITED | WNOWAIT) == 0 && information.si_pid == pid && of_children() < few);
	CHECK(wait4(pid, &status, 0, &usage) == pid && status == 0);
	most = (now(CLOCK_MONOTONIC) - begin) / 1000 + few;
	CHECK(microseconds_of(&usage) >= one - few && microseconds_of(&usage) < most && usage.ru_maxrss > 0);
	CHECK(of_children() >= one - few && of_children() < most);
	pid = work(1);
	CHECK(wait4(pid, NULL, 0, &usage) == pid && microseconds_of(&usage) >= 2 * one - few);
	CHECK(of_children() >= 3 * one - few);
	pid = work(0);
	CHECK(waitid(P_PID, pid, &information, WEXITED) == 0 && information.si_pid == pid && of_children() >= 4 * one - few);
	CHECK(times(&ticks) != -1 && ticks.tms_cutime + ticks.tms_cstime >= 4 * one / 10000 - 1);
	CHECK(wait4(-1, NULL, WNOHANG, &usage) == -1 && errno == ECHILD);

	/* One that is stopped is not over. */
	before = of_children();
	pid = fork();
	if (pid == 0) {
		burn(WORK);
		raise(SIGSTOP);
		burn(WORK);
		_exit(0);
	}
	CHECK(wait4(pid, &status, WUNTRACED, &usage) == pid && WIFSTOPPED(status) && of_children() == before);
	CHECK(microseconds_of(&usage) >= one - few);
	kill(pid, SIGCONT);
	CHECK(wait4(pid, &status, 0, &usage) == pid && status == 0 && of_children() >= before + 2 * one - few);

	/* One that is killed. */
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
	CHECK(wait4(pid, &status, 0, &usage) == pid && WIFSIGNALED(status) && of_children() >= before + one - few);

	/* Nobody waits for one: it does not count. */
	before = of_children();
	signal(SIGCHLD, SIG_IGN);
	work(0);
	CHECK(wait4(-1, NULL, 0, NULL) == -1 && errno == ECHILD && of_children() == before);
	signal(SIGCHLD, SIG_DFL);

	/* A program that was executed has the time of the one before, also of its children. */
	pid = fork();
	if (pid == 0) {
		burn(WORK);
		waitpid(work(0), NULL, 0);
		execl("/proc/self/exe", "again", NULL);
		_exit(1);
	}
	CHECK(wait4(pid, &status, 0, &usage) == pid && status == 0 && microseconds_of(&usage) >= 2 * one - few);
}

/* After execve. */
static int again(void)
{
	return now(CLOCK_PROCESS_CPUTIME_ID) < WORK || of_children() < WORK / 1500;
}

int main(int argc, char **argv)
{
	struct timespec resolution, pause = { 0, 20000000 };
	clockid_t of_thread, of_process, of_child;
	long microseconds = 0, process, before, own;
	struct rusage usage;
	struct tms ticks;
	pthread_t thread;
	pid_t pid;

	if (argc == 1 && argv[0][0] == 'a')
		return again();
	children();
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, worker, &microseconds);
	pthread_barrier_wait(&barrier);
	CHECK(microseconds >= WORK / 1000 - 1000);
	CHECK(pthread_getcpuclockid(thread, &of_thread) == 0 && now(of_thread) >= WORK);
	own = now(CLOCK_THREAD_CPUTIME_ID);
	CHECK(own < now(CLOCK_PROCESS_CPUTIME_ID) - WORK);
	CHECK(clock_getcpuclockid(0, &of_process) == 0 && now(of_process) >= WORK);
	CHECK(clock_getcpuclockid(getpid(), &of_process) == 0 && now(of_process) >= WORK);
	CHECK(clock_getres(of_thread, &resolution) == 0 && resolution.tv_nsec == 1);
	/* A thread that waits does not work, unless it has just begun to wait. */
	for (int tries = 0; tries == 0 || (tries < 10 && own >= 10000000); tries++) {
		before = now(of_thread);
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
		own = now(of_thread) - before;
	}
	CHECK(own < 10000000);
	pthread_barrier_wait(&barrier);
	pthread_join(thread, NULL);
	while (now(of_thread) != -1)
		;
	CHECK(errno == EINVAL);

	/* The time of threads that have ended stays. */
	process = now(CLOCK_PROCESS_CPUTIME_ID);
	CHECK(process >= WORK);
	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	CHECK(usage.ru_utime.tv_sec * 1000000L + usage.ru_utime.tv_usec +
	      usage.ru_stime.tv_sec * 1000000L + usage.ru_stime.tv_usec >= WORK / 1000 - 10000);
	CHECK(usage.ru_maxrss > 0);
	CHECK(times(&ticks) != -1 && ticks.tms_utime + ticks.tms_stime >= 1);

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
	/* Its last moments in the realm may come after the wait. */
	for (int tries = 0; tries < 1000 && clock_gettime(of_child, &resolution) == 0; tries++)
		clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	FAILS(EINVAL, clock_gettime(of_child, &resolution));
	FAILS(EINVAL, clock_gettime(-1, &resolution));
	FAILS(EINVAL, clock_gettime((~1 << 3) | 6, &resolution));
	FAILS(EINVAL, getrusage(17, &usage));
	FAILS(EFAULT, getrusage(RUSAGE_SELF, (void *)8));
	return finish();
}
