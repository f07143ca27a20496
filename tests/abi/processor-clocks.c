// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Timers of timer_create, and sleepers, that count the processor time of the process or of a
 * thread. Linux looks at its ticks.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "moments.h"

#define MS 1000000L
/* The longest tick. */
#define TICK (10 * MS)

static volatile int expired, overrun;
static volatile long value;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	overrun = info->si_overrun;
	value = info->si_value.sival_int;
	expired++;
}

/* Sets a timer, in nanoseconds. */
static int set(timer_t timer, int flags, long first, long each)
{
	struct itimerspec time = { timespec(each), timespec(first) };

	return timer_settime(timer, flags, &time, NULL);
}

/* Returns what is left of a timer in nanoseconds, or -1. */
static long left(timer_t timer)
{
	struct itimerspec time;

	return timer_gettime(timer, &time) ? -1 : nanoseconds(time.it_value);
}

/*
 * Works until the timer has expired `count` times, but not for more than 20 seconds of the clock.
 */
static int burn(int count)
{
	long end = shown(CLOCK_THREAD_CPUTIME_ID) + 20000 * MS;

	while (expired < count && shown(CLOCK_THREAD_CPUTIME_ID) < end)
		;
	return expired >= count;
}

/* Works for so many nanoseconds of the clock of this thread. */
static void work(long time)
{
	long end = shown(CLOCK_THREAD_CPUTIME_ID) + time;

	while (shown(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

/* Makes a timer of a clock of the processor. */
static timer_t make(clockid_t clock)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL,
				  .sigev_signo = SIGRTMIN,
				  .sigev_value.sival_int = 77 };
	timer_t timer;

	CHECK(timer_create(clock, &event, &timer) == 0 && left(timer) == 0);
	return timer;
}

BEFORE_EACH
{
	alarm(300);
	expired = 0;
	sigaction(SIGRTMIN, &(struct sigaction){ .sa_sigaction = handler, .sa_flags = SA_SIGINFO },
		  NULL);
}

/*
 * A timer expires after that much work and, unless the host takes the processor away each time, not
 * much more.
 */
static void once(clockid_t clock)
{
	timer_t timer = make(clock);
	long begin, took = 0;

	for (int attempt = 0; attempt == 0 || (attempt < 5 && took >= 500 * MS); attempt++) {
		expired = 0;
		begin = shown(clock);
		if (set(timer, 0, 30 * MS, 0) || left(timer) > 30 * MS + TICK || left(timer) == 0 ||
		    !burn(1))
			break;
		took = shown(clock) - begin;
	}
	CHECK(expired == 1 && took >= 30 * MS && took < 500 * MS && value == 77 &&
	      left(timer) == 0);
	CHECK(timer_delete(timer) == 0);
}

/* A timer expires at a moment of the clock, or at once if that is past. */
static void at_a_moment(clockid_t clock)
{
	timer_t timer = make(clock);
	long begin;

	expired = 0;
	begin = shown(clock) + 20 * MS;
	CHECK(set(timer, TIMER_ABSTIME, begin, 0) == 0 && burn(1) && shown(clock) >= begin);
	expired = 0;
	CHECK(set(timer, TIMER_ABSTIME, 1, 0) == 0 && burn(1));
	CHECK(timer_delete(timer) == 0);
}

/* A periodic timer expires on a grid. */
static void each_time(clockid_t clock)
{
	timer_t timer = make(clock);
	long begin;

	expired = 0;
	begin = shown(clock);
	CHECK(set(timer, 0, 20 * MS, 20 * MS) == 0 && burn(4) && shown(clock) - begin >= 80 * MS);
	CHECK(left(timer) > 0 && left(timer) <= 20 * MS + TICK);
	CHECK(set(timer, 0, 0, 0) == 0);
	CHECK(timer_delete(timer) == 0);
}

/* Sleeping is no work. */
static void asleep(clockid_t clock)
{
	timer_t timer = make(clock);
	long begin;

	expired = 0;
	begin = shown(clock);
	CHECK(set(timer, 0, 400 * MS, 0) == 0);
	pause_for(500);
	CHECK(expired == 0 || shown(clock) - begin >= 400 * MS);
	CHECK(burn(1) && shown(clock) - begin >= 400 * MS);
	CHECK(timer_delete(timer) == 0);
}

/* A signal that is blocked counts what goes by. */
static void blocked(clockid_t clock)
{
	timer_t timer = make(clock);

	sigset_t set_of_one;

	sigemptyset(&set_of_one);
	sigaddset(&set_of_one, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set_of_one, NULL);
	expired = 0;
	CHECK(set(timer, 0, 10 * MS, 10 * MS) == 0);
	work(60 * MS);
	CHECK(expired == 0);
	sigprocmask(SIG_UNBLOCK, &set_of_one, NULL);
	CHECK(expired >= 1 && overrun >= 3);
	CHECK(timer_delete(timer) == 0);
	expired = 0;
	work(30 * MS);
	CHECK(expired == 0);
}

CASE(a_timer_of_the_process_expires_once)
{
	once(CLOCK_PROCESS_CPUTIME_ID);
}

CASE(a_timer_of_the_process_expires_at_a_moment)
{
	at_a_moment(CLOCK_PROCESS_CPUTIME_ID);
}

CASE(a_timer_of_the_process_expires_each_time)
{
	each_time(CLOCK_PROCESS_CPUTIME_ID);
}

CASE(sleeping_is_no_work_for_a_timer_of_the_process)
{
	asleep(CLOCK_PROCESS_CPUTIME_ID);
}

CASE(a_blocked_signal_of_a_timer_of_the_process_counts_overruns)
{
	blocked(CLOCK_PROCESS_CPUTIME_ID);
}

CASE(a_timer_of_the_thread_expires_once)
{
	once(CLOCK_THREAD_CPUTIME_ID);
}

CASE(a_timer_of_the_thread_expires_at_a_moment)
{
	at_a_moment(CLOCK_THREAD_CPUTIME_ID);
}

CASE(a_timer_of_the_thread_expires_each_time)
{
	each_time(CLOCK_THREAD_CPUTIME_ID);
}

CASE(sleeping_is_no_work_for_a_timer_of_the_thread)
{
	asleep(CLOCK_THREAD_CPUTIME_ID);
}

CASE(a_blocked_signal_of_a_timer_of_the_thread_counts_overruns)
{
	blocked(CLOCK_THREAD_CPUTIME_ID);
}

/* The clock of this thread by its id. */
static clockid_t of_this_thread(void)
{
	clockid_t clock;

	CHECK(pthread_getcpuclockid(pthread_self(), &clock) == 0);
	return clock;
}

/* The clock of this process by its id. */
static clockid_t of_this_process(void)
{
	clockid_t other;

	CHECK(clock_getcpuclockid(0, &other) == 0);
	return other;
}

CASE(a_timer_of_a_thread_by_its_id_expires_once)
{
	once(of_this_thread());
}

CASE(a_timer_of_a_thread_by_its_id_expires_at_a_moment)
{
	at_a_moment(of_this_thread());
}

CASE(a_timer_of_a_thread_by_its_id_expires_each_time)
{
	each_time(of_this_thread());
}

CASE(sleeping_is_no_work_for_a_timer_of_a_thread_by_its_id)
{
	asleep(of_this_thread());
}

CASE(a_blocked_signal_of_a_timer_of_a_thread_by_its_id_counts_overruns)
{
	blocked(of_this_thread());
}

CASE(a_timer_of_a_process_by_its_id_expires_once)
{
	once(of_this_process());
}

CASE(a_timer_of_a_process_by_its_id_expires_at_a_moment)
{
	at_a_moment(of_this_process());
}

CASE(a_timer_of_a_process_by_its_id_expires_each_time)
{
	each_time(of_this_process());
}

CASE(sleeping_is_no_work_for_a_timer_of_a_process_by_its_id)
{
	asleep(of_this_process());
}

CASE(a_blocked_signal_of_a_timer_of_a_process_by_its_id_counts_overruns)
{
	blocked(of_this_process());
}

static volatile int stop;
static pthread_barrier_t barrier;

/* It leaves the signals to the others. */
static void *worker(void *argument)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	pthread_barrier_wait(&barrier);
	while (!stop)
		;
	return argument;
}

/*
 * Starts a thread that works from the first wait at the barrier until it is stopped, and returns
 * its clock.
 */
static clockid_t start_worker(pthread_t *thread)
{
	clockid_t clock;

	stop = 0;
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(thread, NULL, worker, NULL);
	CHECK(pthread_getcpuclockid(*thread, &clock) == 0);
	return clock;
}

static void stop_worker(pthread_t thread)
{
	stop = 1;
	pthread_join(thread, NULL);
}

CASE(a_timer_of_another_thread_counts_its_time_alone)
{
	timer_t of_thread;
	pthread_t thread = 0;
	clockid_t clock;
	long begin;

	clock = start_worker(&thread);
	of_thread = make(clock);
	/* On a busy host it may take that long until the thread waits at the barrier. */
	do {
		expired = 0;
		begin = shown(clock);
		CHECK(set(of_thread, 0, 50 * MS, 0) == 0);
		work(150 * MS);
	} while (shown(clock) - begin >= 50 * MS);
	CHECK(expired == 0);
	pthread_barrier_wait(&barrier);
	while (!expired)
		pause_for(5);
	CHECK(shown(clock) - begin >= 50 * MS);
	CHECK(timer_delete(of_thread) == 0);
	stop_worker(thread);
}

/* The timer of a thread that sleeps stands still. */
CASE(a_timer_of_the_process_counts_the_time_of_all_threads)
{
	timer_t of_process, own;
	pthread_t thread = 0;

	start_worker(&thread);
	pthread_barrier_wait(&barrier);
	of_process = make(CLOCK_PROCESS_CPUTIME_ID);
	own = make(CLOCK_THREAD_CPUTIME_ID);
	CHECK(set(of_process, 0, 50 * MS, 0) == 0 && set(own, 0, 100000 * MS, 0) == 0);
	while (!expired)
		pause_for(5);
	CHECK(left(own) > 50000 * MS);
	CHECK(timer_delete(of_process) == 0 && timer_delete(own) == 0);
	stop_worker(thread);
}

CASE(a_sleep_ends_when_the_process_has_worked)
{
	struct timespec time;
	pthread_t thread = 0;
	long begin;

	start_worker(&thread);
	pthread_barrier_wait(&barrier);
	time = timespec(60 * MS);
	begin = shown(CLOCK_PROCESS_CPUTIME_ID);
	CHECK(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &time, NULL) == 0);
	CHECK(shown(CLOCK_PROCESS_CPUTIME_ID) - begin >= 60 * MS);
	stop_worker(thread);
}

CASE(a_sleep_ends_at_a_moment_of_another_threads_clock)
{
	struct timespec time;
	pthread_t thread = 0;
	clockid_t clock;
	long begin;

	clock = start_worker(&thread);
	pthread_barrier_wait(&barrier);
	begin = shown(clock) + 40 * MS;
	time = timespec(begin);
	CHECK(clock_nanosleep(clock, TIMER_ABSTIME, &time, NULL) == 0 && shown(clock) >= begin);
	time = timespec(1);
	CHECK(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &time, NULL) == 0);
	stop_worker(thread);
}

CASE(a_handler_ends_a_sleep)
{
	struct timespec time;
	timer_t of_process;
	pthread_t thread = 0;

	start_worker(&thread);
	pthread_barrier_wait(&barrier);
	struct timespec rest = { 0, 0 };

	of_process = make(CLOCK_PROCESS_CPUTIME_ID);
	time = timespec(100000 * MS);
	CHECK(set(of_process, 0, 50 * MS, 0) == 0);
	CHECK(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &time, &rest) == EINTR && expired == 1);
	CHECK(nanoseconds(rest) > 50000 * MS && nanoseconds(rest) < 100000 * MS);
	CHECK(timer_delete(of_process) == 0);
	stop_worker(thread);
}

CASE(nobody_sleeps_by_the_clock_of_its_thread)
{
	struct timespec time = { 0, 1 };
	clockid_t clock = of_this_thread();

	CHECK(syscall(SYS_clock_nanosleep, clock, 0, &time, NULL) == -1 && errno == EINVAL);
	FAILS(EOPNOTSUPP, syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &time, NULL));
}

/* One is the clock of no process, the other of no thread of this process. */
CASE(clocks_of_nobody_are_refused)
{
	timer_t timer;

	FAILS(EINVAL, timer_create((~(clockid_t)0x3fffff << 3) | 2, NULL, &timer));
	FAILS(EINVAL, timer_create((~(clockid_t)1 << 3) | 6, NULL, &timer));
}

CASE(the_clock_of_a_child_that_has_ended_shows_its_time)
{
	struct timespec time;
	siginfo_t info;
	clockid_t clock;
	pid_t pid = fork();

	if (pid == 0) {
		while (shown(CLOCK_PROCESS_CPUTIME_ID) < 300 * MS)
			;
		_exit(0);
	}
	CHECK(waitid(P_PID, pid, &info, WEXITED | WNOWAIT) == 0);
	CHECK(clock_getcpuclockid(pid, &clock) == 0 && shown(clock) >= 290 * MS);
	CHECK(shown(clock) < 10000 * MS);
	CHECK(waitpid(pid, NULL, 0) == pid);
	FAILS(EINVAL, clock_gettime(clock, &time));
}

/* A child has none of its parent's timers. */
CASE(a_timer_without_a_handler_ends_a_process)
{
	timer_t timer;
	int status;
	pid_t pid;

	CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, NULL, &timer) == 0 &&
	      set(timer, 0, 100000 * MS, 0) == 0);
	pid = fork();
	if (pid == 0) {
		alarm(0);
		if (timer_delete(timer) == 0 ||
		    timer_create(CLOCK_PROCESS_CPUTIME_ID, NULL, &timer) ||
		    set(timer, 0, 20 * MS, 0))
			_exit(1);
		for (;;)
			;
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
	      WTERMSIG(status) == SIGALRM);
	CHECK(timer_delete(timer) == 0);
}
