// SPDX-License-Identifier: MIT OR Apache-2.0
/* timer_create and relatives: who is told, when, overruns, clocks, errors. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#include "check.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static long long now_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static long long nanoseconds(struct timespec time)
{
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static struct itimerspec in(long long value, long long interval)
{
	return (struct itimerspec){
		.it_value = { value / 1000000000, value % 1000000000 },
		.it_interval = { interval / 1000000000, interval % 1000000000 },
	};
}

#define MS 1000000ll

int main(void)
{
	static const clockid_t clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI };
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	struct timespec long_time = { 60, 0 }, short_time = { 0, 60 * MS };
	struct itimerspec spec, old;
	sigset_t set;
	siginfo_t info;
	timer_t timer, other;
	long long start, armed, began, took = 0;
	unsigned int i, attempts;
	int kernel_id, overrun, right;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigaddset(&set, SIGALRM);
	sigprocmask(SIG_BLOCK, &set, NULL);

	for (i = 0; i < sizeof(clocks) / sizeof(*clocks); i++) {
		event.sigev_value.sival_ptr = (void *)(0x1122334455667700 + i);
		CHECK(timer_create(clocks[i], &event, &timer) == 0);
		CHECK(timer_gettime(timer, &old) == 0 && old.it_value.tv_sec == 0 && old.it_value.tv_nsec == 0);
		spec = in(1000000 * MS, 0);
		CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
		CHECK(timer_gettime(timer, &old) == 0 && nanoseconds(old.it_value) > 900000 * MS && nanoseconds(old.it_value) <= 1000000 * MS);
		/* Relative, and not much later, unless the host takes the processor away each time. */
		spec = in(20 * MS, 0);
		for (attempts = 0; attempts == 0 || (attempts < 5 && took >= 900 * MS); attempts++) {
			start = now_of(CLOCK_MONOTONIC);
			if (timer_settime(timer, 0, &spec, NULL) || sigtimedwait(&set, &info, &long_time) != SIGRTMIN)
				break;
			took = now_of(CLOCK_MONOTONIC) - start;
		}
		CHECK(attempts > 0 && info.si_code == SI_TIMER && took >= 20 * MS && took < 900 * MS);
		CHECK(info.si_value.sival_ptr == event.sigev_value.sival_ptr && info.si_overrun == 0);
		CHECK(timer_gettime(timer, &old) == 0 && old.it_value.tv_sec == 0 && old.it_value.tv_nsec == 0);
		/* Absolute, then what is past. */
		start = now_of(clocks[i]);
		spec = in(start + 20 * MS, 0);
		CHECK(timer_settime(timer, TIMER_ABSTIME, &spec, NULL) == 0);
		CHECK(sigtimedwait(&set, &info, &long_time) == SIGRTMIN && now_of(clocks[i]) >= start + 20 * MS);
		spec = in(1, 0);
		CHECK(timer_settime(timer, TIMER_ABSTIME, &spec, NULL) == 0);
		CHECK(sigtimedwait(&set, &info, &long_time) == SIGRTMIN);
		/* Disarmed, before it has expired. */
		do {
			spec = in(30 * MS, 0);
			right = timer_settime(timer, 0, &spec, NULL) == 0;
			spec = in(0, 0);
			right = right && timer_settime(timer, 0, &spec, &old) == 0;
		} while (right && nanoseconds(old.it_value) == 0 && sigtimedwait(&set, &info, &long_time) == SIGRTMIN);
		CHECK(right && nanoseconds(old.it_value) > 0 && nanoseconds(old.it_value) <= 30 * MS);
		FAILS(EAGAIN, sigtimedwait(&set, &info, &short_time));
		CHECK(timer_delete(timer) == 0);
		FAILS(EINVAL, timer_delete(timer));
	}

	/* Periodic: each expiry once, or as overrun. */
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	spec = in(10 * MS, 10 * MS);
	start = now_of(CLOCK_MONOTONIC);
	CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
	armed = now_of(CLOCK_MONOTONIC);
	overrun = 0;
	for (i = 0; i < 5; i++) {
		began = now_of(CLOCK_MONOTONIC);
		CHECK(sigwaitinfo(&set, &info) == SIGRTMIN);
		overrun += info.si_overrun;
	}
	CHECK(now_of(CLOCK_MONOTONIC) - start >= (5 + overrun) * 10 * MS && began - armed < (5 + overrun) * 10 * MS + 20 * MS);
	/* Set anew while its signal waits, it goes on with that one. */
	nanosleep(&(struct timespec){ 0, 20 * MS }, NULL);
	spec = in(10 * MS, 1 * MS);
	CHECK(timer_settime(timer, 0, &spec, &old) == 0 && old.it_interval.tv_nsec == 10 * MS);
	nanosleep(&(struct timespec){ 0, 60 * MS }, NULL);
	CHECK(sigtimedwait(&set, &info, &(struct timespec){ 0, 0 }) == SIGRTMIN);
	CHECK(info.si_overrun >= 40 && timer_getoverrun(timer) == info.si_overrun - 1);
	CHECK(timer_delete(timer) == 0);
	while (sigtimedwait(&set, &info, &(struct timespec){ 0, 0 }) == SIGRTMIN)
		;

	/* No event: SIGALRM with the timer's id. */
	CHECK(timer_create(CLOCK_MONOTONIC, NULL, &timer) == 0);
	spec = in(1 * MS, 0);
	CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
	CHECK(sigtimedwait(&set, &info, &long_time) == SIGALRM && info.si_code == SI_TIMER);
	/* Nobody is told. */
	event.sigev_notify = SIGEV_NONE;
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &other) == 0);
	spec = in(1000000 * MS, 0);
	CHECK(timer_settime(other, 0, &spec, NULL) == 0);
	CHECK(timer_gettime(other, &old) == 0 && nanoseconds(old.it_value) > 900000 * MS && nanoseconds(old.it_value) <= 1000000 * MS);
	spec = in(1 * MS, 0);
	CHECK(timer_settime(other, 0, &spec, NULL) == 0);
	FAILS(EAGAIN, sigtimedwait(&set, &info, &short_time));
	CHECK(timer_gettime(other, &old) == 0 && old.it_value.tv_sec == 0 && old.it_value.tv_nsec == 0);
	spec = in(1 * MS, 100 * MS);
	CHECK(timer_settime(other, 0, &spec, NULL) == 0);
	nanosleep(&short_time, NULL);
	CHECK(timer_gettime(other, &old) == 0 && old.it_value.tv_nsec > 0 && old.it_value.tv_nsec <= 100 * MS);
	CHECK(timer_delete(timer) == 0 && timer_delete(other) == 0);

	/* A thread is told. */
	event = (struct sigevent){ .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN };
	event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
	spec = in(1 * MS, 0);
	CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
	CHECK(sigtimedwait(&set, &info, &long_time) == SIGRTMIN);
	CHECK(timer_delete(timer) == 0);
	event.sigev_notify_thread_id = 0x3fffffff;
	FAILS(EINVAL, syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernel_id));
	event.sigev_notify_thread_id = 1;
	FAILS(EINVAL, syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &kernel_id));

	event = (struct sigevent){ .sigev_notify = SIGEV_SIGNAL, .sigev_signo = 65 };
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
	FAILS(EINVAL, syscall(SYS_timer_settime, 12345, 0, &spec, NULL));
	FAILS(EINVAL, syscall(SYS_timer_getoverrun, 12345));
	FAILS(EINVAL, syscall(SYS_timer_gettime, 12345, &spec));
	FAILS(EINVAL, syscall(SYS_timer_gettime, -1, &spec));
	/* Ignored signals: nothing comes, the timer goes on. */
	CHECK(syscall(SYS_timer_delete, kernel_id) == 0);
	return finish();
}
