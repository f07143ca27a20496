// SPDX-License-Identifier: MIT OR Apache-2.0
/* timerfd: clocks, single and periodic timers, waiting, sharing and errors. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "moments.h"
#include "waiting.h"

#define MS 1000000L

/* Sets a timer, in nanoseconds. */
static int set(int fd, int flags, int64_t value, int64_t interval)
{
	struct itimerspec new = { timespec(interval), timespec(value) };

	return timerfd_settime(fd, flags, &new, NULL);
}

/* Returns what is left of a timer in nanoseconds, or -1. */
static int64_t remaining(int fd)
{
	struct itimerspec now;

	return timerfd_gettime(fd, &now) ?
		       -1 : now.it_value.tv_sec * 1000000000L + now.it_value.tv_nsec;
}

static volatile int woken;

/* Reads the timer, and returns how often it has expired. */
static void *waiting(void *fd)
{
	uint64_t count = 0;
	long length = read(*(int *)fd, &count, 8);

	__atomic_fetch_add(&woken, 1, __ATOMIC_SEQ_CST);
	return length == 8 ? (void *)count : NULL;
}

/* A timer that shows the time of `clock` is set for a moment of it. */
static void at_a_moment(int kind, int clock)
{
	int fd = timerfd_create(kind, 0);
	uint64_t count = 0;
	int64_t start = shown(clock);

	CHECK(fd == 3 && set(fd, TFD_TIMER_ABSTIME, start + 20 * MS, 0) == 0);
	CHECK(read(fd, &count, 8) == 8 && count == 1 && shown(clock) >= start + 20 * MS);
	CHECK(set(fd, TFD_TIMER_ABSTIME, 1, 0) == 0 && read(fd, &count, 8) == 8 && count == 1);
	CHECK(set(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, shown(clock) + MS, 0) == 0 &&
	      read(fd, &count, 8) == 8);
}

/* It is set for a while. */
static void for_a_while(int kind, int clock)
{
	int fd = timerfd_create(kind, 0);
	uint64_t count = 0;
	int64_t start = shown(clock);

	CHECK(set(fd, 0, 1000000 * MS, 0) == 0 && remaining(fd) > 900000 * MS &&
	      remaining(fd) <= 1000000 * MS);
	CHECK(set(fd, 0, 20 * MS, 0) == 0 && remaining(fd) <= 20 * MS);
	CHECK(read(fd, &count, 8) == 8 && count == 1 && shown(clock) >= start + 20 * MS);
}

BEFORE_EACH
{
	woken = 0;
	syscall(SYS_close_range, 3, ~0U, 0);
}

CASE(a_timer_of_monotonic_time_expires_at_a_moment)
{
	at_a_moment(CLOCK_MONOTONIC, CLOCK_MONOTONIC);
}

CASE(a_timer_of_monotonic_time_expires_after_a_while)
{
	for_a_while(CLOCK_MONOTONIC, CLOCK_MONOTONIC);
}

CASE(a_timer_of_real_time_expires_at_a_moment)
{
	at_a_moment(CLOCK_REALTIME, CLOCK_REALTIME);
}

CASE(a_timer_of_real_time_expires_after_a_while)
{
	for_a_while(CLOCK_REALTIME, CLOCK_REALTIME);
}

CASE(a_timer_of_boot_time_expires_at_a_moment)
{
	at_a_moment(CLOCK_BOOTTIME, CLOCK_BOOTTIME);
}

CASE(a_timer_of_boot_time_expires_after_a_while)
{
	for_a_while(CLOCK_BOOTTIME, CLOCK_BOOTTIME);
}

CASE(a_timer_of_boot_time_for_alarms_expires_at_a_moment)
{
	at_a_moment(CLOCK_BOOTTIME_ALARM, CLOCK_BOOTTIME);
}

CASE(a_timer_of_boot_time_for_alarms_expires_after_a_while)
{
	for_a_while(CLOCK_BOOTTIME_ALARM, CLOCK_BOOTTIME);
}

CASE(a_file_has_flags_and_a_status)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	struct stat status_of;

	CHECK(fd == 3 && fcntl(fd, F_GETFD) == 1 && fcntl(fd, F_GETFL) == (O_RDWR | O_NONBLOCK));
	CHECK(lseek(fd, 5, SEEK_SET) == 0 && fstat(fd, &status_of) == 0 &&
	      status_of.st_mode == 0600 && status_of.st_size == 0);
	CHECK(ready(fd, POLLIN | POLLOUT, 0) == 0 && remaining(fd) == 0);
}

CASE(bad_reads_and_writes_are_refused)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	uint64_t count = 0, big[2] = { 1, 2 };

	FAILS(EAGAIN, read(fd, &count, 8));
	FAILS(EINVAL, read(fd, &count, 7));
	FAILS(EINVAL, read(fd, &count, 0));
	FAILS(EINVAL, write(fd, &count, 8));
	FAILS(ESPIPE, pread(fd, &count, 8, 0));
	FAILS(ENOTTY, ioctl(fd, TIOCGWINSZ, big));
}

CASE(bad_timers_are_not_made)
{
	FAILS(EINVAL, timerfd_create(CLOCK_MONOTONIC, 1));
	FAILS(EINVAL, timerfd_create(CLOCK_MONOTONIC_RAW, 0));
	FAILS(EINVAL, timerfd_create(CLOCK_THREAD_CPUTIME_ID, 0));
	FAILS(EINVAL, timerfd_create(CLOCK_TAI, 0));
	FAILS(EINVAL, timerfd_create(77, 0));
}

CASE(bad_times_and_files_are_refused)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	struct itimerspec spec = { { 1, 0 }, { 2, 0 } };

	FAILS(EBADF, timerfd_settime(77, 0, &spec, NULL));
	FAILS(EBADF, timerfd_gettime(77, &spec));
	FAILS(EINVAL, timerfd_settime(0, 0, &spec, NULL));
	FAILS(EINVAL, timerfd_gettime(0, &spec));
	FAILS(EINVAL, timerfd_settime(fd, 4, &spec, NULL));
	FAILS(EFAULT, timerfd_settime(fd, 0, at(16), NULL));
	FAILS(EFAULT, timerfd_gettime(fd, at(16)));
	spec.it_value.tv_nsec = 1000000000;
	FAILS(EINVAL, timerfd_settime(fd, 0, &spec, NULL));
	spec.it_value.tv_nsec = 0;
	spec.it_interval.tv_sec = -1;
	FAILS(EINVAL, timerfd_settime(fd, 0, &spec, NULL));
}

/* The timer is set even if the old time cannot be stored. */
CASE(setting_a_timer_tells_what_was_set)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	struct itimerspec spec = { { 1, 0 }, { 2, 0 } }, old;
	uint64_t count = 0;

	CHECK(timerfd_settime(fd, 0, &spec, &old) == 0 && old.it_value.tv_sec == 0 &&
	      old.it_interval.tv_sec == 0);
	CHECK(timerfd_settime(fd, 0, &spec, &old) == 0 && old.it_value.tv_sec <= 2 &&
	      old.it_interval.tv_sec == 1);
	CHECK(remaining(fd) > 0 && remaining(fd) <= 2000 * MS);
	FAILS(EFAULT, timerfd_settime(fd, TFD_TIMER_ABSTIME,
				      &(struct itimerspec){ .it_value = { 0, 1 } }, at(16)));
	CHECK(ready(fd, POLLIN | POLLOUT, -1) == POLLIN && remaining(fd) == 0);
	CHECK(set(fd, 0, 0, 5) == 0 && ready(fd, POLLIN | POLLOUT, 0) == 0 && remaining(fd) == 0);
	FAILS(EAGAIN, read(fd, &count, 8));
}

/* Bad memory loses the expirations. */
CASE(eight_bytes_are_read)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	uint64_t count = 0, big[2] = { 1, 2 };

	CHECK(set(fd, 0, 1, 0) == 0 && ready(fd, POLLIN | POLLOUT, -1) == POLLIN &&
	      read(fd, big, 16) == 8 && big[0] == 1 && big[1] == 2);
	CHECK(set(fd, 0, 1, 0) == 0 && ready(fd, POLLIN | POLLOUT, -1) == POLLIN);
	FAILS(EFAULT, read(fd, at(16), 8));
	FAILS(EAGAIN, read(fd, &count, 8));
}

/* All expirations lie on one grid. */
CASE(a_periodic_timer_counts_all_expirations)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	uint64_t count = 0, sum;
	int64_t start;

	start = shown(CLOCK_MONOTONIC);
	CHECK(set(fd, TFD_TIMER_ABSTIME, start + 3 * MS, 3 * MS) == 0);
	for (sum = 0; sum < 10; sum += count)
		if (ready(fd, POLLIN | POLLOUT, -1) != POLLIN || read(fd, &count, 8) != 8 ||
		    count == 0)
			break;
	CHECK(sum >= 10 && shown(CLOCK_MONOTONIC) >= start + (int64_t)sum * 3 * MS);
	usleep(20000);
	CHECK(remaining(fd) >= 0 && remaining(fd) <= 3 * MS &&
	      ready(fd, POLLIN | POLLOUT, 0) == POLLIN);
	CHECK(read(fd, &count, 8) == 8 && count >= 6 &&
	      count <= (uint64_t)(shown(CLOCK_MONOTONIC) - start) / (3 * MS) - sum);
	FAILS(EAGAIN, (set(fd, 0, 0, 0), read(fd, &count, 8)));
}

CASE(an_interval_of_a_nanosecond_keeps_nobody_from_working)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t count = 0;

	CHECK(set(fd, 0, 1, 1) == 0 && read(fd, &count, 8) == 8 && count >= 1 &&
	      read(fd, &count, 8) == 8 && count >= 1);
	CHECK(close(fd) == 0);
}

/* They share it after the first copy is closed. */
CASE(copies_and_children_share_the_timer)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, 0), copy, status;
	uint64_t count = 0;
	pid_t child;

	copy = dup(fd);
	CHECK(copy == 4 && set(copy, 0, 1000000 * MS, 0) == 0 && remaining(fd) > 900000 * MS);
	CHECK(set(copy, 0, 50 * MS, 0) == 0 && remaining(fd) <= 50 * MS && close(fd) == 0);
	child = fork();
	if (child == 0)
		_exit(read(copy, &count, 8) == 8 && count == 1 && set(copy, 0, 10 * MS, 0) == 0 ?
		      0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0 && read(copy, &count, 8) == 8 &&
	      count == 1);
	CHECK(set(copy, 0, 1000 * MS, 10 * MS) == 0 && dup2(copy, 3) == 3 && close(copy) == 0 &&
	      close(3) == 0);
}

CASE(one_of_several_threads_gets_an_expiration)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t sum;
	pthread_t threads[3];
	void *result;

	CHECK(fd == 3);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, waiting, &fd);
	sum = 0;
	for (int i = 0; i < 3; i++) {
		set(fd, 0, 10 * MS, 0);
		while (woken == i)
			usleep(1000);
	}
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], &result);
		sum += (uint64_t)result;
	}
	CHECK(sum == 3);
}

/* They also wait for it beside a file of Linux. */
CASE(poll_and_select_wait_for_a_timer)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t count = 0;
	int pair[2];
	fd_set readable;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && set(fd, 0, 10 * MS, 0) == 0);
	struct pollfd both[2] = { { pair[0], POLLIN, 0 }, { fd, POLLIN, 0 } };

	CHECK(poll(both, 2, -1) == 1 && both[0].revents == 0 && both[1].revents == POLLIN);
	CHECK(read(fd, &count, 8) == 8 && set(fd, 0, 10 * MS, 0) == 0);
	FD_ZERO(&readable);
	FD_SET(fd, &readable);
	CHECK(select(fd + 1, &readable, NULL, NULL, NULL) == 1 && FD_ISSET(fd, &readable) &&
	      read(fd, &count, 8) == 8);
}

/*
 * With SA_RESTART the call is made again. The signal comes again and again, because the first may
 * come before the call begins.
 */
CASE(a_handler_ends_a_read)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);
	struct timespec soon = { 0, 5 * MS };
	struct sigaction action = { .sa_handler = note };
	uint64_t count = 0;

	timer_t alarm;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec once = { { 0, 0 }, soon }, each = { { 0, 10 * MS }, soon };

	CHECK(timer_create(CLOCK_MONOTONIC, &event, &alarm) == 0);
	sigaction(SIGUSR1, &action, NULL);
	timer_settime(alarm, 0, &each, NULL);
	FAILS(EINTR, read(fd, &count, 8));
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
	timer_settime(alarm, 0, &once, NULL);
	CHECK(set(fd, 0, 30 * MS, 0) == 0 && read(fd, &count, 8) == 8 && count == 1);
	timer_delete(alarm);
}

/* A descriptor with close-on-exec is closed. */
CASE(execve_keeps_a_timer)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, 0), status;
	pid_t child;

	child = fork();
	if (child == 0) {
		fcntl(fd, F_SETFD, 0);
		set(fd, 0, 10 * MS, 0);
		execl("/bin/sh", "sh", "-c", "test $(head -c 8 <&3 | wc -c) = 8", NULL);
		_exit(1);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}
