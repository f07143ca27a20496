// SPDX-License-Identifier: MIT OR Apache-2.0
/* timer_create and relatives: who is told, when, overruns, clocks and errors. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>

#include "check.h"
#include "moments.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* A time of a timer, in nanoseconds. */
static struct itimerspec in(long long value, long long interval)
{
	return (struct itimerspec){
		.it_value = { value / 1000000000, value % 1000000000 },
		.it_interval = { interval / 1000000000, interval % 1000000000 },
	};
}

#define MS 1000000ll

static const struct timespec long_time = { 60, 0 }, short_time = { 0, 60 * MS }, at_once = { 0, 0 };
static struct sigevent event;
static sigset_t set;

BEFORE_EACH
{
	event = (struct sigevent){ .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, NULL);
}

/* The time of a timer is a while from now. */
static void relative(clockid_t clock)
{
	struct itimerspec spec, old;
	siginfo_t info;
	timer_t timer;
	long long start, took = 0;
	unsigned int attempts;

	event.sigev_value.sival_ptr = (void *)0x1122334455667700;
	CHECK(timer_create(clock, &event, &timer) == 0);
	CHECK(timer_gettime(timer, &old) == 0 && old.it_value.tv_sec == 0 &&
	      old.it_value.tv_nsec == 0);
	spec = in(1000000 * MS, 0);
	CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
	CHECK(timer_gettime(timer, &old) == 0 && nanoseconds(old.it_value) > 900000 * MS &&
	      nanoseconds(old.it_value) <= 1000000 * MS);
	/* Relative, and not much later, unless the host takes the processor away each time. */
	spec = in(20 * MS, 0);
	for (attempts = 0; attempts == 0 || (attempts < 5 && took >= 900 * MS); attempts++) {
		start = shown(CLOCK_MONOTONIC);
		if (timer_settime(timer, 0, &spec, NULL) ||
		    sigtimedwait(&set, &info, &long_time) != SIGRTMIN)
			break;
		took = shown(CLOCK_MONOTONIC) - start;
	}
	CHECK(attempts > 0 && info.si_code == SI_TIMER && took >= 20 * MS && took < 900 * MS);
	CHECK(info.si_value.sival_ptr == event.sigev_value.sival_ptr && info.si_overrun == 0);
	CHECK(timer_gettime(timer, &old) == 0 && old.it_value.tv_sec == 0 &&
	      old.it_value.tv_nsec == 0);
	CHECK(timer_delete(timer) == 0);
}

/* The time of a timer is a moment, in the future or past. */
static void absolute(clockid_t clock)
{
	struct itimerspec spec;
	siginfo_t info;
	timer_t timer;
	long long start;

	CHECK(timer_create(clock, &event, &timer) == 0);
	start = shown(clock);
	spec = in(start + 20 * MS, 0);
	CHECK(timer_settime(timer, TIMER_ABSTIME, &spec, NULL) == 0);
	CHECK(sigtimedwait(&set, &info, &long_time) == SIGRTMIN && shown(clock) >= start + 20 * MS);
	spec = in(1, 0);
	CHECK(timer_settime(timer, TIMER_ABSTIME, &spec, NULL) == 0);
	CHECK(sigtimedwait(&set, &info, &long_time) == SIGRTMIN);
	CHECK(timer_delete(timer) == 0);
}

/* A timer is disarmed before it has expired. */
static void disarmed(clockid_t clock)
{
	struct itimerspec spec, old;
	siginfo_t info;
	timer_t timer;
	int right;

	CHECK(timer_create(clock, &event, &timer) == 0);
	do {
		spec = in(30 * MS, 0);
		right = timer_settime(timer, 0, &spec, NULL) == 0;
		spec = in(0, 0);
		right = right && timer_settime(timer, 0, &spec, &old) == 0;
	} while (right && nanoseconds(old.it_value) == 0 &&
		 sigtimedwait(&set, &info, &long_time) == SIGRTMIN);
	CHECK(right && nanoseconds(old.it_value) > 0 && nanoseconds(old.it_value) <= 30 * MS);
	FAILS(EAGAIN, sigtimedwait(&set, &info, &short_time));
	CHECK(timer_delete(timer) == 0);
	FAILS(EINVAL, timer_delete(timer));
}

/*
 * Linux tells what remains of a timer before it stops it. If its function runs at that moment, on
 * another CPU or in a thread of PREEMPT_RT, the timer expires nevertheless. Keeps this thread, and
 * so its timers, on one CPU. Returns whether that is enough.
 */
static int stops_timers_at_once(void)
{
	struct utsname name;
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	return uname(&name) == 0 && !strstr(name.version, "PREEMPT_RT") &&
	       sched_setaffinity(0, sizeof(here), &here) == 0;
}

/* A timer that is about to expire is set to nothing. If some time remained, it does not expire. */
CASE(a_timer_of_which_time_remains_has_not_expired)
{
	struct itimerspec spec, old;
	siginfo_t info;
	timer_t timer;

	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	if (!stops_timers_at_once())
		return;
	for (int round = 0; round < 4000; round++) {
		spec = in(1 + round * 10 % 20000, 0);
		CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
		spec = in(0, 0);
		CHECK(timer_settime(timer, 0, &spec, &old) == 0);
		CHECK(sigtimedwait(&set, &info, &at_once) != SIGRTMIN ||
		      nanoseconds(old.it_value) == 0);
	}
	CHECK(timer_delete(timer) == 0);
}

CASE(an_interval_timer_of_which_time_remains_has_not_expired)
{
	struct itimerval value, old;
	siginfo_t info;

	if (!stops_timers_at_once())
		return;
	for (int round = 0; round < 4000; round++) {
		value = (struct itimerval){ .it_value.tv_usec = 1 + round % 20 };
		CHECK(setitimer(ITIMER_REAL, &value, NULL) == 0);
		value.it_value.tv_usec = 0;
		CHECK(setitimer(ITIMER_REAL, &value, &old) == 0);
		CHECK(sigtimedwait(&set, &info, &at_once) != SIGALRM || old.it_value.tv_usec == 0);
	}
}

CASE(a_timer_expires_after_a_while_of_real_time)
{
	relative(CLOCK_REALTIME);
}

CASE(a_timer_expires_at_a_moment_of_real_time)
{
	absolute(CLOCK_REALTIME);
}

CASE(a_disarmed_timer_of_real_time_does_not_expire)
{
	disarmed(CLOCK_REALTIME);
}

CASE(a_timer_expires_after_a_while_of_monotonic_time)
{
	relative(CLOCK_MONOTONIC);
}

CASE(a_timer_expires_at_a_moment_of_monotonic_time)
{
	absolute(CLOCK_MONOTONIC);
}

CASE(a_disarmed_timer_of_monotonic_time_does_not_expire)
{
	disarmed(CLOCK_MONOTONIC);
}

CASE(a_timer_expires_after_a_while_of_boot_time)
{
	relative(CLOCK_BOOTTIME);
}

CASE(a_timer_expires_at_a_moment_of_boot_time)
{
	absolute(CLOCK_BOOTTIME);
}

CASE(a_disarmed_timer_of_boot_time_does_not_expire)
{
	disarmed(CLOCK_BOOTTIME);
}

CASE(a_timer_expires_after_a_while_of_atomic_time)
{
	relative(CLOCK_TAI);
}

CASE(a_timer_expires_at_a_moment_of_atomic_time)
{
	absolute(CLOCK_TAI);
}

CASE(a_disarmed_timer_of_atomic_time_does_not_expire)
{
	disarmed(CLOCK_TAI);
}

CASE(each_expiry_comes_once_or_as_overrun)
{
	struct itimerspec spec;
	siginfo_t info;
	timer_t timer;
	long long start, armed, began = 0;
	int overrun;

	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	spec = in(10 * MS, 10 * MS);
	start = shown(CLOCK_MONOTONIC);
	CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
	armed = shown(CLOCK_MONOTONIC);
	overrun = 0;
	for (int i = 0; i < 5; i++) {
		began = shown(CLOCK_MONOTONIC);
		CHECK(sigwaitinfo(&set, &info) == SIGRTMIN);
		overrun += info.si_overrun;
	}
	CHECK(shown(CLOCK_MONOTONIC) - start >= (5 + overrun) * 10 * MS &&
	      began - armed < (5 + overrun) * 10 * MS + 20 * MS);
	CHECK(timer_delete(timer) == 0);
}

/* Its signal is pending meanwhile. */
CASE(a_timer_that_is_set_anew_goes_on_with_its_signal)
{
	struct itimerspec spec, old;
	siginfo_t info;
	timer_t timer;

	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	spec = in(10 * MS, 10 * MS);
	CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
	nanosleep(&(struct timespec){ 0, 20 * MS }, NULL);
	spec = in(10 * MS, 1 * MS);
	CHECK(timer_settime(timer, 0, &spec, &old) == 0 && old.it_interval.tv_nsec == 10 * MS);
	nanosleep(&(struct timespec){ 0, 60 * MS }, NULL);
	CHECK(sigtimedwait(&set, &info, &at_once) == SIGRTMIN);
	CHECK(info.si_overrun >= 40 && timer_getoverrun(timer) == info.si_overrun - 1);
	CHECK(timer_delete(timer) == 0);
}

CASE(without_an_event_sigalrm_comes)
{
	struct itimerspec spec;
	siginfo_t info;
	timer_t timer;

	CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
	spec = in(1 * MS, 0);
	CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
	CHECK(sigtimedwait(&set, &info, &long_time) == SIGALRM && info.si_code == SI_TIMER);
	CHECK(timer_delete(timer) == 0);
}

CASE(a_timer_may_tell_nobody)
{
	struct itimerspec spec, old;
	siginfo_t info;
	timer_t other;

	event.sigev_notify = SIGEV_NONE;
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &other) == 0);
	spec = in(1000000 * MS, 0);
	CHECK(timer_settime(other, 0, &spec, NULL) == 0);
	CHECK(timer_gettime(other, &old) == 0 && nanoseconds(old.it_value) > 900000 * MS &&
	      nanoseconds(old.it_value) <= 1000000 * MS);
	spec = in(1 * MS, 0);
	CHECK(timer_settime(other, 0, &spec, NULL) == 0);
	FAILS(EAGAIN, sigtimedwait(&set, &info, &short_time));
	CHECK(timer_gettime(other, &old) == 0 && old.it_value.tv_sec == 0 &&
	      old.it_value.tv_nsec == 0);
	spec = in(1 * MS, 100 * MS);
	CHECK(timer_settime(other, 0, &spec, NULL) == 0);
	nanosleep(&short_time, NULL);
	CHECK(timer_gettime(other, &old) == 0 && old.it_value.tv_nsec > 0 &&
	      old.it_value.tv_nsec <= 100 * MS);
	CHECK(timer_delete(other) == 0);
}

CASE(a_timer_may_tell_a_thread)
{
	struct itimerspec spec;
	siginfo_t info;
	timer_t timer;

	event = (struct sigevent){ .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN };
	event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	spec = in(1 * MS, 0);
	CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
	CHECK(sigtimedwait(&set, &info, &long_time) == SIGRTMIN);
	CHECK(timer_delete(timer) == 0);
}

CASE(a_timer_cannot_tell_a_thread_of_others)
{
	int kernel_id;

	event = (struct sigevent){ .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN };
	event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
	event.sigev_notify_thread_id = 0x3fffffff;
	FAILS(EINVAL, syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernel_id));
	event.sigev_notify_thread_id = 1;
	FAILS(EINVAL, syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernel_id));
}

CASE(bad_timers_are_not_made)
{
	int kernel_id;

	event.sigev_signo = 65;
	FAILS(EINVAL, syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernel_id));
	event.sigev_signo = 0;
	FAILS(EINVAL, syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernel_id));
	event = (struct sigevent){ .sigev_notify = 77, .sigev_signo = SIGRTMIN };
	FAILS(EINVAL, syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernel_id));
	event.sigev_notify = SIGEV_SIGNAL;
	FAILS(EINVAL, syscall(SYS_timer_create, 99, &event, &kernel_id));
	FAILS(EOPNOTSUPP, syscall(SYS_timer_create, CLOCK_MONOTONIC_RAW, &event, &kernel_id));
	FAILS(EOPNOTSUPP, syscall(SYS_timer_create, CLOCK_MONOTONIC_COARSE, &event, &kernel_id));
	FAILS(EFAULT, syscall(SYS_timer_create, CLOCK_MONOTONIC, (void *)8, &kernel_id));
	FAILS(EFAULT, syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, (void *)8));
}

CASE(bad_times_are_refused)
{
	struct itimerspec spec;
	int kernel_id;

	CHECK(syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernel_id) == 0);
	FAILS(EINVAL, syscall(SYS_timer_settime, kernel_id, 0, NULL, NULL));
	FAILS(EFAULT, syscall(SYS_timer_settime, kernel_id, 0, (void *)8, NULL));
	FAILS(EFAULT, syscall(SYS_timer_gettime, kernel_id, (void *)8));
	spec = in(0, 0);
	spec.it_value.tv_nsec = 1000000000;
	FAILS(EINVAL, syscall(SYS_timer_settime, kernel_id, 0, &spec, NULL));
	spec.it_value = (struct timespec){ -1, 0 };
	FAILS(EINVAL, syscall(SYS_timer_settime, kernel_id, 0, &spec, NULL));
	spec = in(1, 0);
	CHECK(syscall(SYS_timer_delete, kernel_id) == 0);
}

CASE(unknown_timers_are_refused)
{
	struct itimerspec spec;

	spec = in(1, 0);
	FAILS(EINVAL, syscall(SYS_timer_settime, 12345, 0, &spec, NULL));
	FAILS(EINVAL, syscall(SYS_timer_getoverrun, 12345));
	FAILS(EINVAL, syscall(SYS_timer_gettime, 12345, &spec));
	FAILS(EINVAL, syscall(SYS_timer_gettime, -1, &spec));
}
