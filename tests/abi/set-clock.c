// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * When CLOCK_REALTIME is set, sleepers, futexes and timers that wait for a time of it follow.
 * Others do not.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>

#define OWN_MAIN
#include "check.h"
#include "moments.h"
#include "waiting.h"

/* Seconds of CLOCK_REALTIME. Nobody waits that long. */
#define FAR 3600
/* Milliseconds of CLOCK_MONOTONIC. Nobody waits that long. */
#define LONG 100000L

/* Milliseconds since then. */
static long since(struct timespec start)
{
	struct timespec now = after(CLOCK_MONOTONIC, 0);

	return (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000;
}

/* Sets CLOCK_REALTIME by so many seconds. */
static int step(long seconds)
{
	struct timespec now = after(CLOCK_REALTIME, seconds * 1000);

	return clock_settime(CLOCK_REALTIME, &now);
}

static struct timespec in(clockid_t clock, long seconds)
{
	return after(clock, seconds * 1000);
}

static volatile int asleep, awake;

/* How a thread waits, for so many seconds of CLOCK_REALTIME. */
struct wait {
	const char *name;
	int (*wait)(clockid_t clock, struct timespec until);
	clockid_t clock;
	int result;
	pthread_t thread;
	struct timespec until;
	long took;
};

static int by_sleep(clockid_t clock, struct timespec until)
{
	return clock_nanosleep(clock, TIMER_ABSTIME, &until, NULL);
}

static int by_futex(clockid_t clock, struct timespec until)
{
	static int word;

	(void)clock;
	return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &until,
		       NULL, -1) ? errno : 0;
}

static int by_semaphore(clockid_t clock, struct timespec until)
{
	sem_t semaphore;

	(void)clock;
	sem_init(&semaphore, 0, 0);
	return sem_timedwait(&semaphore, &until) ? errno : 0;
}

static int by_condition(clockid_t clock, struct timespec until)
{
	pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

	(void)clock;
	pthread_mutex_lock(&mutex);
	return pthread_cond_timedwait(&condition, &mutex, &until);
}

/* A lock that the main thread holds. */
static uint32_t held;

static int by_pi(clockid_t clock, struct timespec until)
{
	(void)clock;
	return syscall(SYS_futex, &held, FUTEX_LOCK_PI, 0, &until, NULL, 0) ? errno : 0;
}

static void *waits(void *argument)
{
	struct wait *wait = argument;
	struct timespec start = after(CLOCK_MONOTONIC, 0);

	__atomic_fetch_add(&asleep, 1, __ATOMIC_SEQ_CST);
	wait->result = wait->wait(wait->clock, wait->until);
	wait->took = since(start);
	__atomic_fetch_add(&awake, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static struct wait all[] = {
	{ .name = "clock_nanosleep", .wait = by_sleep, .clock = CLOCK_REALTIME, .result = -1 },
	{ .name = "clock_nanosleep, TAI", .wait = by_sleep, .clock = CLOCK_TAI, .result = -1 },
	{ .name = "futex", .wait = by_futex, .result = -1 },
	{ .name = "sem_timedwait", .wait = by_semaphore, .result = -1 },
	{ .name = "pthread_cond_timedwait", .wait = by_condition, .result = -1 },
	{ .name = "PI futex", .wait = by_pi, .result = -1 },
};
#define COUNT (int)(sizeof(all) / sizeof(*all))

/* Has all threads wait until so many seconds from now. */
static void begin(long seconds)
{
	asleep = awake = 0;
	for (int i = 0; i < COUNT; i++) {
		all[i].until = in(all[i].clock ? all[i].clock : CLOCK_REALTIME, seconds);
		pthread_create(&all[i].thread, NULL, waits, &all[i]);
	}
	while (asleep < COUNT)
		pause_for(1);
	pause_for(50);
}

/*
 * Waits for all threads, and tells whether each has waited for `least` milliseconds, but not for
 * `most`.
 */
static int settle(long least, long most)
{
	int right = 1;

	for (int i = 0; i < COUNT; i++) {
		pthread_join(all[i].thread, NULL);
		int fits = all[i].result == (all[i].wait == by_sleep ? 0 : ETIMEDOUT) &&
			   all[i].took >= least && all[i].took < most;

		if (!fits)
			SAY("%s: result %d after %ld ms", all[i].name, all[i].result, all[i].took);
		right &= fits;
	}
	return right;
}

BEFORE_EACH
{
	alarm(300);
}

CASE(who_waits_for_a_time_is_woken_when_it_is_set)
{
	held = syscall(SYS_gettid);
	begin(FAR);
	CHECK(awake == 0);
	CHECK(step(FAR + 1) == 0 && settle(0, LONG));
	CHECK(step(-FAR - 1) == 0);
}

CASE(who_waits_for_a_time_waits_longer_when_it_is_set_back)
{
	struct timespec start;

	held = syscall(SYS_gettid);
	begin(2);
	start = after(CLOCK_MONOTONIC, 0);
	CHECK(step(-2) == 0);
	CHECK(settle(3000, LONG) && since(start) >= 3000);
	CHECK(step(2) == 0);
}

CASE(durations_and_other_clocks_do_not_follow)
{
	struct timespec monotonic = after(CLOCK_MONOTONIC, 300), start;

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &monotonic, NULL);
	start = after(CLOCK_MONOTONIC, 0);
	if (!fork()) {
		pause_for(100);
		_exit(step(FAR));
	}
	pause_for(500);
	CHECK(since(start) >= 500);
	wait(NULL);
	CHECK(step(-FAR) == 0);
}

static int timer_at(int fd, clockid_t clock, long seconds, long interval, int flags)
{
	struct itimerspec time = { { interval, 0 },
				   seconds ? in(clock, seconds) : (struct timespec){ 0, 0 } };

	return timerfd_settime(fd, TFD_TIMER_ABSTIME | flags, &time, NULL);
}

static void *reads(void *fd)
{
	uint64_t count;
	long length;

	__atomic_fetch_add(&asleep, 1, __ATOMIC_SEQ_CST);
	length = read(*(int *)fd, &count, 8);
	return (void *)(length == 8 ? 0L : errno);
}

CASE(a_timer_file_follows_the_clock_that_it_waits_for)
{
	int at = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK),
	    other = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	struct itimerspec left;
	uint64_t count;

	CHECK(timer_at(at, CLOCK_REALTIME, FAR, 0, 0) == 0 &&
	      timer_at(other, CLOCK_MONOTONIC, FAR, 0, 0) == 0);
	CHECK(step(FAR - 100) == 0 && timerfd_gettime(at, &left) == 0 &&
	      left.it_value.tv_sec <= 100);
	FAILS(EAGAIN, read(at, &count, 8));
	CHECK(step(101) == 0 && ready(at, POLLIN, LONG) == POLLIN && read(at, &count, 8) == 8 &&
	      count == 1);
	CHECK(step(-FAR - 1) == 0 && ready(at, POLLIN, 0) == 0 && ready(other, POLLIN, 0) == 0);
}

/* The timer still expires. */
CASE(a_set_clock_cancels_a_timer_that_wants_it)
{
	int at = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
	int set = epoll_create1(0);
	struct itimerspec left;
	struct epoll_event event = { .events = EPOLLIN };
	uint64_t count;

	CHECK(timer_at(at, CLOCK_REALTIME, FAR, 0, TFD_TIMER_CANCEL_ON_SET) == 0);
	FAILS(EAGAIN, read(at, &count, 8));
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, at, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0);
	CHECK(step(-5) == 0 && epoll_wait(set, &event, 1, LONG) == 1 &&
	      ready(at, POLLIN, LONG) == POLLIN);
	FAILS(ECANCELED, read(at, &count, 8));
	FAILS(EAGAIN, read(at, &count, 8));
	CHECK(ready(at, POLLIN, 0) == 0);
	CHECK(timerfd_gettime(at, &left) == 0 && left.it_value.tv_sec > FAR - 10);
	CHECK(step(FAR + 10) == 0);
	FAILS(ECANCELED, read(at, &count, 8));
	CHECK(step(-FAR - 5) == 0);
	FAILS(ECANCELED, read(at, &count, 8));
}

CASE(setting_a_cancelled_timer_tells_and_sets)
{
	int at = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
	struct itimerspec left;
	uint64_t count;

	CHECK(timer_at(at, CLOCK_REALTIME, FAR, 0, TFD_TIMER_CANCEL_ON_SET) == 0 && step(1) == 0);
	FAILS(ECANCELED, timer_at(at, CLOCK_REALTIME, FAR, 0, TFD_TIMER_CANCEL_ON_SET));
	CHECK(timerfd_gettime(at, &left) == 0 && left.it_value.tv_sec > FAR - 10);
	FAILS(EAGAIN, read(at, &count, 8));
	CHECK(step(-1) == 0);
}

/* It cancels no timer without the flag, for a duration, or of another clock. */
CASE(a_set_clock_does_not_cancel_what_does_not_want_it)
{
	int at = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK),
	    other = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	int blocks = timerfd_create(CLOCK_REALTIME, 0);
	struct itimerspec relative = { { 0, 0 }, { FAR, 0 } };

	CHECK(step(1) == 0);
	CHECK(timer_at(at, CLOCK_REALTIME, FAR, 0, 0) == 0);
	CHECK(timer_at(other, CLOCK_MONOTONIC, FAR, 0, TFD_TIMER_CANCEL_ON_SET) == 0);
	CHECK(timerfd_settime(blocks, TFD_TIMER_CANCEL_ON_SET, &relative, NULL) == 0 &&
	      step(-1) == 0);
	CHECK(!ready(at, POLLIN, 0) && !ready(other, POLLIN, 0) && !ready(blocks, POLLIN, 0));
}

CASE(a_set_clock_cancels_a_timer_without_a_time)
{
	int at = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
	uint64_t count;

	CHECK(timer_at(at, CLOCK_REALTIME, 0, 0, TFD_TIMER_CANCEL_ON_SET) == 0 && step(1) == 0);
	CHECK(ready(at, POLLIN, LONG) == POLLIN);
	FAILS(ECANCELED, read(at, &count, 8));
	CHECK(step(-1) == 0);
}

CASE(a_set_clock_cancels_a_read_of_a_timer)
{
	int blocks = timerfd_create(CLOCK_REALTIME, 0);
	pthread_t thread;
	void *error;

	asleep = 0;
	CHECK(timer_at(blocks, CLOCK_REALTIME, FAR, 1, TFD_TIMER_CANCEL_ON_SET) == 0);
	pthread_create(&thread, NULL, reads, &blocks);
	while (!asleep)
		pause_for(1);
	pause_for(50);
	CHECK(step(-1) == 0 && pthread_join(thread, &error) == 0 && (long)error == ECANCELED);
	CHECK(step(1) == 0);
}

/* A change of the offset cancels no timer. */
CASE(the_offset_of_tai_wakes_timers_of_tai_alone)
{
	struct timex before = { .modes = 0 }, change = { .modes = ADJ_TAI };
	int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
	struct timespec until = in(CLOCK_TAI, FAR);
	struct itimerspec time = { { 0, 0 }, until };
	timer_t timer;
	sigset_t set;
	int signal = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	CHECK(adjtimex(&before) >= 0 &&
	      timer_at(fd, CLOCK_REALTIME, FAR, 0, TFD_TIMER_CANCEL_ON_SET) == 0);
	CHECK(timer_create(CLOCK_TAI, NULL, &timer) == 0 &&
	      timer_settime(timer, TIMER_ABSTIME, &time, NULL) == 0);
	change.constant = before.tai + FAR + 1;
	CHECK(adjtimex(&change) >= 0 && sigwait(&set, &signal) == 0 && signal == SIGALRM);
	CHECK(ready(fd, POLLIN, 0) == 0);
	change.constant = before.tai;
	CHECK(adjtimex(&change) >= 0 && timer_delete(timer) == 0);
	close(fd);
}

/* The next expiry lies on the grid. */
CASE(a_timer_follows_offsets_and_settimeofday)
{
	struct itimerspec left, time = { { FAR, 0 }, in(CLOCK_REALTIME, FAR) };
	struct timex offset = { .modes = ADJ_SETOFFSET, .time = { FAR - 10, 0 } };
	struct timeval day;
	struct timespec none = { 0, 0 };
	timer_t timer;
	sigset_t set;
	int signal = 0;

	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	CHECK(timer_create(CLOCK_REALTIME, NULL, &timer) == 0 &&
	      timer_settime(timer, TIMER_ABSTIME, &time, NULL) == 0);
	CHECK(adjtimex(&offset) >= 0 && timer_gettime(timer, &left) == 0 &&
	      left.it_value.tv_sec <= 10);
	FAILS(EAGAIN, sigtimedwait(&set, NULL, &none));
	CHECK(gettimeofday(&day, NULL) == 0);
	day.tv_sec += 2 * FAR + 11;
	CHECK(settimeofday(&day, NULL) == 0 && sigwait(&set, &signal) == 0 && signal == SIGALRM);
	CHECK(timer_getoverrun(timer) == 2);
	CHECK(timer_gettime(timer, &left) == 0 && left.it_value.tv_sec > FAR - 60);
	CHECK(step(FAR) == 0 && sigwait(&set, &signal) == 0 && timer_getoverrun(timer) == 0);
	CHECK(timer_delete(timer) == 0 && step(-4 * FAR - 1) == 0);
}

/* What the clocks showed when the program started. */
static struct timespec first, first_day;

/* This case has to be the last. */
CASE(the_clock_is_where_it_was)
{
	struct timespec now = after(CLOCK_REALTIME, 0);

	CHECK(labs(now.tv_sec - first_day.tv_sec - since(first) / 1000) < 60);
}

int main(int count, char **arguments)
{
	first = after(CLOCK_MONOTONIC, 0);
	first_day = after(CLOCK_REALTIME, 0);
	return run_cases(count, arguments);
}
