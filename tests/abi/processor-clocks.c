// SPDX-License-Identifier: MIT OR Apache-2.0
/* Timers of timer_create, and sleepers, that count processor time: of the process, of a thread. Linux looks at its ticks. */
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

static long nanoseconds(struct timespec time)
{
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

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

static int set(timer_t timer, int flags, long first, long each)
{
	struct itimerspec time = { timespec(each), timespec(first) };

	return timer_settime(timer, flags, &time, NULL);
}

static long left(timer_t timer)
{
	struct itimerspec time;

	return timer_gettime(timer, &time) ? -1 : nanoseconds(time.it_value);
}

/* Works until the timer has expired `count` times, but not for more than 20 seconds of the clock. */
static int burn(int count)
{
	long end = shown(CLOCK_THREAD_CPUTIME_ID) + 20000 * MS;

	while (expired < count && shown(CLOCK_THREAD_CPUTIME_ID) < end)
		;
	return expired >= count;
}

static void work(long time)
{
	long end = shown(CLOCK_THREAD_CPUTIME_ID) + time;

	while (shown(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void one(clockid_t clock)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 77 };
	long begin, took = 0;
	timer_t timer;

	CHECK(timer_create(clock, &event, &timer) == 0 && left(timer) == 0);
	/* Once, after that much work and, unless the host takes the processor away each time, not much more. */
	for (int attempt = 0; attempt == 0 || (attempt < 5 && took >= 500 * MS); attempt++) {
		expired = 0;
		begin = shown(clock);
		if (set(timer, 0, 30 * MS, 0) || left(timer) > 30 * MS + TICK || left(timer) == 0 || !burn(1))
			break;
		took = shown(clock) - begin;
	}
	CHECK(expired == 1 && took >= 30 * MS && took < 500 * MS && value == 77 && left(timer) == 0);
	/* Absolute, and what is past. */
	expired = 0;
	begin = shown(clock) + 20 * MS;
	CHECK(set(timer, TIMER_ABSTIME, begin, 0) == 0 && burn(1) && shown(clock) >= begin);
	expired = 0;
	CHECK(set(timer, TIMER_ABSTIME, 1, 0) == 0 && burn(1));
	/* Each time, on a grid. */
	expired = 0;
	begin = shown(clock);
	CHECK(set(timer, 0, 20 * MS, 20 * MS) == 0 && burn(4) && shown(clock) - begin >= 80 * MS);
	CHECK(left(timer) > 0 && left(timer) <= 20 * MS + TICK);
	CHECK(set(timer, 0, 0, 0) == 0);
	/* Sleeping is no work. */
	expired = 0;
	begin = shown(clock);
	CHECK(set(timer, 0, 400 * MS, 0) == 0);
	pause_for(500);
	CHECK(expired == 0 || shown(clock) - begin >= 400 * MS);
	CHECK(burn(1) && shown(clock) - begin >= 400 * MS);
	/* A signal that is blocked counts what goes by. */
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

static void threads(void)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	timer_t of_thread, of_process, own;
	clockid_t clock;
	pthread_t thread;
	long begin;

	/* The time of another thread, not one's own. */
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&thread, NULL, worker, NULL);
	CHECK(pthread_getcpuclockid(thread, &clock) == 0 && timer_create(clock, &event, &of_thread) == 0);
	expired = 0;
	begin = shown(clock);
	CHECK(set(of_thread, 0, 50 * MS, 0) == 0);
	work(150 * MS);
	CHECK(expired == 0);
	pthread_barrier_wait(&barrier);
	while (!expired)
		pause_for(5);
	CHECK(shown(clock) - begin >= 50 * MS);
	/* That of the process is that of all. Its own thread's stands still. */
	expired = 0;
	CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &of_process) == 0 && set(of_process, 0, 50 * MS, 0) == 0);
	CHECK(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &own) == 0 && set(own, 0, 100000 * MS, 0) == 0);
	while (!expired)
		pause_for(5);
	CHECK(left(own) > 50000 * MS);

	/* Sleeping until the process has worked. */
	struct timespec time = timespec(60 * MS), rest = { 0, 0 };

	begin = shown(CLOCK_PROCESS_CPUTIME_ID);
	CHECK(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &time, NULL) == 0);
	CHECK(shown(CLOCK_PROCESS_CPUTIME_ID) - begin >= 60 * MS);
	begin = shown(clock) + 40 * MS;
	time = timespec(begin);
	CHECK(clock_nanosleep(clock, TIMER_ABSTIME, &time, NULL) == 0 && shown(clock) >= begin);
	time = timespec(1);
	CHECK(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, TIMER_ABSTIME, &time, NULL) == 0);
	/* A handler ends it. */
	expired = 0;
	time = timespec(100000 * MS);
	CHECK(set(of_process, 0, 50 * MS, 0) == 0);
	CHECK(clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, &time, &rest) == EINTR && expired == 1);
	CHECK(nanoseconds(rest) > 50000 * MS && nanoseconds(rest) < 100000 * MS);
	stop = 1;
	pthread_join(thread, NULL);
	CHECK(timer_delete(of_thread) == 0 && timer_delete(of_process) == 0 && timer_delete(own) == 0);
}

int main(void)
{
	struct timespec time = { 0, 1 };
	clockid_t clock, other;
	timer_t timer;
	int status;
	pid_t pid;

	alarm(300);
	sigaction(SIGRTMIN, &(struct sigaction){ .sa_sigaction = handler, .sa_flags = SA_SIGINFO }, NULL);
	one(CLOCK_PROCESS_CPUTIME_ID);
	one(CLOCK_THREAD_CPUTIME_ID);
	CHECK(pthread_getcpuclockid(pthread_self(), &clock) == 0);
	one(clock);
	CHECK(clock_getcpuclockid(0, &other) == 0);
	one(other);
	threads();
	CHECK(syscall(SYS_clock_nanosleep, clock, 0, &time, NULL) == -1 && errno == EINVAL);
	FAILS(EOPNOTSUPP, syscall(SYS_clock_nanosleep, CLOCK_THREAD_CPUTIME_ID, 0, &time, NULL));
	/* Of no process, and of no thread of this one. */
	FAILS(EINVAL, timer_create((~(clockid_t)0x3fffff << 3) | 2, NULL, &timer));
	FAILS(EINVAL, timer_create((~(clockid_t)1 << 3) | 6, NULL, &timer));
	/* By default it ends a process; a child has none. */
	CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, NULL, &timer) == 0 && set(timer, 0, 100000 * MS, 0) == 0);
	pid = fork();
	if (pid == 0) {
		alarm(0);
		if (timer_delete(timer) == 0 || timer_create(CLOCK_PROCESS_CPUTIME_ID, NULL, &timer) || set(timer, 0, 20 * MS, 0))
			_exit(1);
		for (;;)
			;
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
	return finish();
}
