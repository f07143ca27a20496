// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Interval timers in processor time: ITIMER_VIRTUAL and ITIMER_PROF. Linux counts it in ticks, and
 * grants each timer one more. A clock of the processor goes on while the host does something else.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "moments.h"

#define MS 1000000L
/* The longest tick. */
#define TICK (10 * MS)

static volatile int expired, code;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	code = info->si_code;
	expired++;
}

static long used(void)
{
	return shown(CLOCK_PROCESS_CPUTIME_ID);
}

static int is_pending(int signal)
{
	sigset_t pending;

	return sigpending(&pending) == 0 && sigismember(&pending, signal);
}

static long nanoseconds_of(struct timeval time)
{
	return time.tv_sec * 1000000000L + time.tv_usec * 1000;
}

/* Sets a timer, in nanoseconds. */
static int set(int which, long first, long each)
{
	struct itimerval timer = { { each / 1000000000, each / 1000 % 1000000 },
				   { first / 1000000000, first / 1000 % 1000000 } };

	return setitimer(which, &timer, NULL);
}

/* Works without system calls: ITIMER_VIRTUAL counts that alone. */
static void work(void)
{
	for (volatile int i = 0; i < 100000; i++)
		;
}

/* Works until the timer has expired `count` times, but not for more than 10 seconds. */
static int burn(int count)
{
	long end = used() + 10000 * MS;

	while (expired < count && used() < end)
		work();
	return expired >= count;
}

static void *burner(void *unused)
{
	burn(2);
	return unused;
}

static void handle(int signal)
{
	expired = code = 0;
	sigaction(signal, &(struct sigaction){ .sa_sigaction = handler, .sa_flags = SA_SIGINFO },
		  NULL);
}

/*
 * A timer expires after that much work and, unless the host takes the processor away each time, not
 * much more.
 */
static void once(int which, int signal)
{
	struct itimerval timer;
	long begin, took = 0;

	handle(signal);
	for (int attempt = 0; attempt == 0 || (attempt < 5 && took >= 500 * MS); attempt++) {
		expired = code = 0;
		begin = used();
		if (set(which, 30 * MS, 0) || !burn(1))
			break;
		took = used() - begin;
	}
	CHECK(expired == 1 && took >= 29 * MS && took < 500 * MS && code == SI_KERNEL);
	CHECK(getitimer(which, &timer) == 0 && nanoseconds_of(timer.it_value) == 0 &&
	      nanoseconds_of(timer.it_interval) == 0);
}

/* A periodic timer expires each time. */
static void each_time(int which, int signal)
{
	struct itimerval timer;
	long begin;

	handle(signal);
	begin = used();
	CHECK(set(which, 10 * MS, 20 * MS) == 0 && burn(5) && used() - begin >= 88 * MS);
	CHECK(getitimer(which, &timer) == 0 && nanoseconds_of(timer.it_value) > 0 &&
	      nanoseconds_of(timer.it_value) <= 20 * MS + TICK &&
	      nanoseconds_of(timer.it_interval) == 20 * MS);
	CHECK(set(which, 0, 0) == 0);
}

/* Sleeping is no work. */
static void asleep(int which, int signal)
{
	struct itimerval timer;
	struct timespec pause = { 0, 60 * MS };
	long begin, clock, took = 0;

	handle(signal);
	clock = shown(CLOCK_MONOTONIC);
	begin = used();
	CHECK(set(which, 50 * MS, 0) == 0 &&
	      clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL) == 0 &&
	      (expired == 0 || used() - begin >= 49 * MS));
	CHECK(getitimer(which, &timer) == 0 &&
	      nanoseconds_of(timer.it_value) + used() - begin > 20 * MS &&
	      nanoseconds_of(timer.it_value) <= 50 * MS + TICK);
	took = used() - begin;
	/* On the way to sleep the host may take the processor away, and that counts as work. */
	CHECK(shown(CLOCK_MONOTONIC) - clock - took >= 30 * MS);
	CHECK(burn(1));
}

/* The work of all threads counts. */
static void in_threads(int which, int signal)
{
	pthread_t thread;
	long begin;

	handle(signal);
	begin = used();
	CHECK(set(which, 30 * MS, 30 * MS) == 0);
	pthread_create(&thread, NULL, burner, NULL);
	pthread_join(thread, NULL);
	CHECK(expired >= 2 && used() - begin >= 58 * MS);
	set(which, 0, 0);
}

/* A signal that is blocked stays pending. */
static void blocked(int which, int signal)
{
	long begin;

	handle(signal);
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, signal);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	begin = used();
	set(which, 10 * MS, 0);
	while (!is_pending(signal) && used() - begin < 10000 * MS)
		work();
	for (begin = used(); used() - begin < 30 * MS;)
		work();
	CHECK(expired == 0 && is_pending(signal));
	sigprocmask(SIG_SETMASK, &(sigset_t){ 0 }, NULL);
	CHECK(expired == 1);
}

CASE(a_virtual_timer_expires_once)
{
	once(ITIMER_VIRTUAL, SIGVTALRM);
}

CASE(a_virtual_timer_expires_each_time)
{
	each_time(ITIMER_VIRTUAL, SIGVTALRM);
}

CASE(sleeping_is_no_work_for_a_virtual_timer)
{
	asleep(ITIMER_VIRTUAL, SIGVTALRM);
}

CASE(all_threads_work_for_a_virtual_timer)
{
	in_threads(ITIMER_VIRTUAL, SIGVTALRM);
}

CASE(a_blocked_signal_of_a_virtual_timer_stays_pending)
{
	blocked(ITIMER_VIRTUAL, SIGVTALRM);
}

CASE(a_profiling_timer_expires_once)
{
	once(ITIMER_PROF, SIGPROF);
}

CASE(a_profiling_timer_expires_each_time)
{
	each_time(ITIMER_PROF, SIGPROF);
}

CASE(sleeping_is_no_work_for_a_profiling_timer)
{
	asleep(ITIMER_PROF, SIGPROF);
}

CASE(all_threads_work_for_a_profiling_timer)
{
	in_threads(ITIMER_PROF, SIGPROF);
}

CASE(a_blocked_signal_of_a_profiling_timer_stays_pending)
{
	blocked(ITIMER_PROF, SIGPROF);
}

static void move_to(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

/* The CPU on which it was set is about to look at it. */
CASE(a_timer_is_taken_back_on_another_cpu)
{
	cpu_set_t all;
	int cpus[2], count = 0;

	handle(SIGPROF);
	sched_getaffinity(0, sizeof(all), &all);
	for (int cpu = 0; cpu < CPU_SETSIZE && count < 2; cpu++) {
		if (CPU_ISSET(cpu, &all))
			cpus[count++] = cpu;
	}
	for (int round = 0; round < 2000; round++) {
		struct timespec begin, now;
		long passed;

		move_to(cpus[round % count]);
		clock_gettime(CLOCK_MONOTONIC, &begin);
		set(ITIMER_PROF, 2 * MS, 0);
		move_to(cpus[(round + 1) % count]);
		do {
			clock_gettime(CLOCK_MONOTONIC, &now);
			passed = (now.tv_sec - begin.tv_sec) * 1000 * MS + now.tv_nsec -
				 begin.tv_nsec;
		} while (passed < 950000 + round % 100 * 1000);
		set(ITIMER_PROF, 0, 0);
	}
	sched_setaffinity(0, sizeof(all), &all);
	expired = 0;
	CHECK(set(ITIMER_PROF, 10 * MS, 0) == 0 && burn(1));
}

/* Sets a timer and executes this program again, with the signal blocked. */
static void execute(void)
{
	char begin[24];
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGPROF);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	snprintf(begin, sizeof(begin), "%ld", used());
	set(ITIMER_PROF, 100 * MS, 0);
	execl("/proc/self/exe", "again", begin, NULL);
}

/*
 * After execve the timer goes on from where it was, unless execve took so long that it has expired.
 */
ROLE(again)
{
	struct itimerval timer;
	long left, begin = atol(arguments[1]);

	if (getitimer(ITIMER_PROF, &timer))
		return 1;
	left = nanoseconds_of(timer.it_value);
	if (left == 0 ? !is_pending(SIGPROF)
		      : left > 100 * MS + TICK || left + used() - begin < 70 * MS)
		return 2;
	sigaction(SIGPROF, &(struct sigaction){ .sa_sigaction = handler, .sa_flags = SA_SIGINFO },
		  NULL);
	sigprocmask(SIG_SETMASK, &(sigset_t){ 0 }, NULL);
	if (!burn(1))
		return 3;
	return used() - begin < 70 * MS ? 4 : 0;
}

CASE(without_a_handler_a_process_ends_that_only_works)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		signal(SIGVTALRM, SIG_DFL);
		set(ITIMER_VIRTUAL, 20 * MS, 0);
		for (;;)
			;
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	      WTERMSIG(status) == SIGVTALRM);
}

CASE(a_child_has_no_timer)
{
	struct itimerval timer;
	int status;
	pid_t pid;

	CHECK(set(ITIMER_PROF, 1000000 * MS, 1000 * MS) == 0);
	pid = fork();
	if (pid == 0)
		_exit(getitimer(ITIMER_PROF, &timer) != 0 || nanoseconds_of(timer.it_value) != 0 ||
		      nanoseconds_of(timer.it_interval) != 0);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK(getitimer(ITIMER_VIRTUAL, &timer) == 0 && nanoseconds_of(timer.it_value) == 0);
	CHECK(setitimer(ITIMER_PROF, NULL, &timer) == 0 &&
	      nanoseconds_of(timer.it_value) > 900000 * MS &&
	      nanoseconds_of(timer.it_interval) == 1000 * MS);
}

CASE(execve_keeps_a_timer)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		execute();
		_exit(100);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* Sets a timer that does not go, and returns the interval that is found of it. */
static time_t kept_interval(int which)
{
	struct itimerval value = { .it_interval.tv_sec = 1000 }, found;

	CHECK(setitimer(which, &value, NULL) == 0 && getitimer(which, &found) == 0);
	CHECK(found.it_value.tv_sec == 0 && found.it_value.tv_usec == 0);
	return found.it_interval.tv_sec;
}

CASE(a_timer_that_does_not_go_keeps_its_interval_if_it_counts_processor_time)
{
	struct itimerval value = { { 1000, 0 }, { 1000, 0 } };
	const int all[] = { ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF };
	unsigned i;

	for (i = 0; i < 3; i++) {
		CHECK(kept_interval(all[i]) == (all[i] == ITIMER_REAL ? 0 : 1000));
		CHECK(setitimer(all[i], &value, NULL) == 0);
		CHECK(kept_interval(all[i]) == (all[i] == ITIMER_REAL ? 0 : 1000));
	}
}

CASE(bad_timers_are_refused)
{
	struct itimerval timer = { { 0, 0 }, { 0, 0 } };

	FAILS(EINVAL, setitimer(3, &timer, NULL));
	FAILS(EINVAL, getitimer(-1, &timer));
	timer.it_value.tv_usec = 1000000;
	FAILS(EINVAL, setitimer(ITIMER_PROF, &timer, NULL));
	FAILS(EFAULT, setitimer(ITIMER_PROF, (void *)8, NULL));
	FAILS(EFAULT, getitimer(ITIMER_PROF, (void *)8));
}
