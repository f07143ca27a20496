// SPDX-License-Identifier: MIT OR Apache-2.0
/* epoll over pipes, eventfds, timers and sockets: levels, edges, single reports, sharing, nesting, waiting, errors. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "waiting.h"

#define MS 1000000L

static struct epoll_event found[8];
static uint64_t one = 1;
static char byte;

static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int control(int set, int operation, int fd, uint32_t events)
{
	struct epoll_event wanted = { events, { .u64 = 0x100000000 + fd } };

	return epoll_ctl(set, operation, fd, &wanted);
}

static int add(int set, int fd, uint32_t events)
{
	return control(set, EPOLL_CTL_ADD, fd, events);
}

/* What is found without waiting: events of one member, or the negative count. */
static int only(int set, int fd)
{
	int count = epoll_wait(set, found, 8, 0);

	return count == 1 && found[0].data.u64 == 0x100000000 + (uint64_t)fd ? (int)found[0].events : -count;
}

static void alarm_in(long nanoseconds, long interval)
{
	static timer_t alarm;
	static int made;
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
	struct itimerspec once = { { 0, interval }, { 0, nanoseconds } };

	if (!made++)
		timer_create(CLOCK_MONOTONIC, &event, &alarm);
	timer_settime(alarm, 0, &once, NULL);
}

struct wait {
	int set, count;
	struct epoll_event found[4];
};

static volatile int woken;

static void *waiting(void *argument)
{
	struct wait *wait = argument;

	wait->count = epoll_wait(wait->set, wait->found, 4, 60000);
	__atomic_fetch_add(&woken, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void local(void)
{
	int ends[2], full[2], set, event, timer, copy, status;
	struct itimerspec soon = { { 0, 0 }, { 0, 10 * MS } };

	/* What is made before the set can be added as well. */
	CHECK(pipe(ends) == 0);
	event = eventfd(0, 0);
	timer = timerfd_create(CLOCK_MONOTONIC, 0);
	CHECK(event == 5 && timer == 6);
	CHECK((set = epoll_create1(EPOLL_CLOEXEC)) == 7 && fcntl(set, F_GETFD) == FD_CLOEXEC);
	CHECK(pipe(full) == 0 && full[0] == 8);
	CHECK(add(set, ends[0], EPOLLIN) == 0 && add(set, event, EPOLLIN) == 0 && add(set, timer, EPOLLIN) == 0);
	CHECK(epoll_wait(set, found, 8, 10) == 0);

	/* Levels. */
	CHECK(write(ends[1], "xy", 2) == 2 && only(set, ends[0]) == EPOLLIN && only(set, ends[0]) == EPOLLIN);
	CHECK(read(ends[0], &byte, 1) == 1 && only(set, ends[0]) == EPOLLIN && read(ends[0], &byte, 1) == 1 && only(set, ends[0]) == 0);
	CHECK(write(event, &one, 8) == 8 && only(set, event) == EPOLLIN && read(event, &one, 8) == 8 && only(set, event) == 0);
	CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0 && epoll_wait(set, found, 8, -1) == 1 && only(set, timer) == EPOLLIN);
	CHECK(read(timer, &one, 8) == 8 && only(set, timer) == 0);

	/* A member at a time: each has its turn. */
	one = 1;
	CHECK(write(event, &one, 8) == 8 && write(ends[1], "x", 1) == 1 && epoll_wait(set, found, 8, 0) == 2);
	CHECK(epoll_wait(set, found, 1, 0) == 1 && epoll_wait(set, found + 1, 1, 0) == 1 && found[0].data.u64 != found[1].data.u64);
	CHECK(epoll_wait(set, found + 1, 1, 0) == 1 && found[0].data.u64 == found[1].data.u64);
	FAILS(EFAULT, epoll_wait(set, at(16), 8, 0));
	CHECK(epoll_wait(set, found, 8, 0) == 2);

	/* Changes. */
	CHECK(control(set, EPOLL_CTL_MOD, ends[0], 0) == 0 && only(set, event) == EPOLLIN);
	CHECK(control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLRDNORM) == 0 && control(set, EPOLL_CTL_DEL, event, 0) == 0);
	CHECK(only(set, ends[0]) == (EPOLLIN | EPOLLRDNORM) && read(event, &one, 8) == 8 && read(ends[0], &byte, 1) == 1);
	CHECK(add(set, event, EPOLLOUT) == 0 && only(set, event) == EPOLLOUT);
	CHECK(control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLOUT | EPOLLET) == 0);

	/* Edges. */
	CHECK(only(set, event) == EPOLLOUT && only(set, event) == 0);
	one = 1;
	CHECK(write(event, &one, 8) == 8 && only(set, event) == (EPOLLIN | EPOLLOUT) && only(set, event) == 0);
	CHECK(write(event, &one, 8) == 8 && only(set, event) == (EPOLLIN | EPOLLOUT) && only(set, event) == 0);
	CHECK(control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLET) == 0 && only(set, event) == EPOLLIN && only(set, event) == 0);
	CHECK(read(event, &one, 8) == 8 && one == 2 && only(set, event) == 0);
	CHECK(control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET) == 0 && write(ends[1], "x", 1) == 1 && only(set, ends[0]) == EPOLLIN);
	CHECK(only(set, ends[0]) == 0 && write(ends[1], "x", 1) == 1 && only(set, ends[0]) == EPOLLIN && read(ends[0], found, 2) == 2);
	CHECK(add(set, full[1], EPOLLIN | EPOLLOUT | EPOLLET) == 0 && only(set, full[1]) == EPOLLOUT);
	CHECK(write(full[1], "x", 1) == 1 && only(set, full[1]) == 0 && control(set, EPOLL_CTL_DEL, full[1], 0) == 0);
	CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0 && control(set, EPOLL_CTL_MOD, timer, EPOLLIN | EPOLLET) == 0);
	CHECK(epoll_wait(set, found, 8, -1) == 1 && only(set, timer) == 0 && read(timer, &one, 8) == 8);

	/* Single reports. */
	one = 1;
	CHECK(control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLONESHOT) == 0 && write(event, &one, 8) == 8 && only(set, event) == EPOLLIN);
	CHECK(only(set, event) == 0 && write(event, &one, 8) == 8 && only(set, event) == 0);
	CHECK(control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLONESHOT) == 0 && only(set, event) == EPOLLIN && only(set, event) == 0);
	CHECK(read(event, &one, 8) == 8 && control(set, EPOLL_CTL_DEL, event, 0) == 0);

	/* What is reported unasked. */
	CHECK(add(set, full[0], 0) == 0 && only(set, full[0]) == 0 && close(full[1]) == 0 && only(set, full[0]) == EPOLLHUP);
	CHECK(close(full[0]) == 0 && only(set, full[0]) == 0);
	CHECK(pipe(full) == 0 && add(set, full[1], 0) == 0 && close(full[0]) == 0 && only(set, full[1]) == EPOLLERR && close(full[1]) == 0);

	/* Copies are members of their own, until the last is closed. */
	copy = dup(event);
	one = 1;
	CHECK(copy == 8 && add(set, event, EPOLLIN) == 0 && add(set, copy, EPOLLIN) == 0 && write(event, &one, 8) == 8);
	CHECK(epoll_wait(set, found, 8, 0) == 2 && close(event) == 0 && epoll_wait(set, found, 8, 0) == 2);
	CHECK(close(copy) == 0 && epoll_wait(set, found, 8, 0) == 0);
	event = eventfd(1, 0);
	CHECK(event == 5 && only(set, event) == 0 && add(set, event, EPOLLIN) == 0 && only(set, event) == EPOLLIN);
	for (int round = 0; round < 300; round++)
		if (control(set, EPOLL_CTL_DEL, event, 0) || add(set, event, EPOLLIN))
			CHECK(0);
	CHECK(only(set, event) == EPOLLIN && read(event, &one, 8) == 8);

	/* The set is shared with children and by copies of its descriptor. */
	int second = dup(set), third = fcntl(set, F_DUPFD_CLOEXEC, 20);

	CHECK(second == 8 && third == 20 && dup2(set, 30) == 30 && dup3(set, 31, O_CLOEXEC) == 31 && close(set) == 0);
	pid_t child = fork();

	if (child == 0) {
		close(ends[1]);
		control(30, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLOUT | EPOLLRDNORM);
		one = 1;
		_exit(write(event, &one, 8) == 8 && only(third, event) == (EPOLLIN | EPOLLOUT) ? 0 : 1);
	}
	CHECK(epoll_wait(second, found, 8, -1) == 1 && waitpid(child, &status, 0) == child && status == 0);
	CHECK(only(31, event) == (EPOLLIN | EPOLLOUT) && read(event, &one, 8) == 8 && only(third, event) == EPOLLOUT);
	FAILS(EBADF, epoll_wait(set, found, 8, 0));
	CHECK(eventfd(0, 0) == set && dup2(set, 30) == 30);
	FAILS(EINVAL, epoll_wait(set, found, 8, 0));
	FAILS(EINVAL, epoll_wait(30, found, 8, 0));
	syscall(SYS_close_range, 7, ~0U, 0);
	FAILS(EBADF, epoll_wait(31, found, 8, 0));
	CHECK(open("/etc/passwd", O_RDONLY) == 7);
	FAILS(EINVAL, epoll_wait(7, found, 8, 0));
	syscall(SYS_close_range, 3, ~0U, 0);
}

static void mixed(void)
{
	int ends[2], pair[2], set = epoll_create(1), event = eventfd(0, EFD_NONBLOCK), status;
	struct wait wait = { set, 0, { { 0 } } };
	pthread_t thread;

	CHECK(set == 3 && pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(add(set, ends[0], EPOLLIN) == 0 && add(set, event, EPOLLIN) == 0);

	/* A thread waits for local files while a socket is added. */
	pthread_create(&thread, NULL, waiting, &wait);
	usleep(20000);
	CHECK(add(set, pair[0], EPOLLIN) == 0 && write(pair[1], "x", 1) == 1 && pthread_join(thread, NULL) == 0);
	CHECK(wait.count == 1 && wait.found[0].data.u32 == (uint32_t)pair[0] && only(set, pair[0]) == EPOLLIN);
	CHECK(write(event, &one, 8) == 8 && epoll_wait(set, found, 8, -1) == 2 && epoll_wait(set, found, 1, -1) == 1);
	CHECK(read(pair[0], &byte, 1) == 1 && only(set, event) == EPOLLIN && read(event, &one, 8) == 8 && only(set, event) == 0);
	FAILS(EEXIST, add(set, pair[0], EPOLLIN));

	/* Each kind ends the wait. */
	for (int kind = 0; kind < 2; kind++) {
		pid_t child = fork();

		if (child == 0) {
			usleep(30000);
			_exit(write(kind ? pair[1] : ends[1], "x", 1) == 1 ? 0 : 1);
		}
		CHECK(epoll_wait(set, found, 8, -1) == 1 && found[0].data.u32 == (uint32_t)(kind ? pair[0] : ends[0]));
		CHECK(waitpid(child, &status, 0) == child && status == 0 && read(kind ? pair[0] : ends[0], &byte, 1) == 1);
	}

	/* Edges and single reports of both. */
	CHECK(control(set, EPOLL_CTL_MOD, pair[0], EPOLLIN | EPOLLET) == 0 && control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET) == 0);
	CHECK(write(pair[1], "x", 1) == 1 && write(ends[1], "x", 1) == 1 && epoll_wait(set, found, 8, 0) == 2 && epoll_wait(set, found, 8, 0) == 0);
	CHECK(control(set, EPOLL_CTL_MOD, pair[0], EPOLLIN | EPOLLONESHOT) == 0 && only(set, pair[0]) == EPOLLIN && only(set, pair[0]) == 0);
	CHECK(control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT) == 0 && only(set, ends[0]) == EPOLLIN && only(set, ends[0]) == 0);

	/* Time, also with a member in Linux. */
	int64_t start = now();

	CHECK(epoll_wait(set, found, 8, 20) == 0 && now() >= start + 20 * MS);
	start = now();
	CHECK(epoll_pwait2(set, found, 8, &(struct timespec){ 0, 5 * MS / 2 }, NULL) == 0 && now() >= start + 5 * MS / 2);
	CHECK(control(set, EPOLL_CTL_DEL, pair[0], 0) == 0);
	FAILS(ENOENT, control(set, EPOLL_CTL_DEL, pair[0], 0));
	start = now();
	CHECK(epoll_wait(set, found, 8, 20) == 0 && now() >= start + 20 * MS);
	start = now();
	CHECK(epoll_pwait2(set, found, 8, &(struct timespec){ 0, 5 * MS / 2 }, NULL) == 0 && now() >= start + 5 * MS / 2);

	/* Signals end it, whatever their handler says. */
	struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
	sigset_t blocked, none;

	sigaction(SIGUSR1, &action, NULL);
	for (int kind = 0; kind < 2; kind++) {
		alarm_in(10 * MS, 10 * MS);
		FAILS(EINTR, epoll_wait(set, found, 8, -1));
		alarm_in(0, 0);
		sigemptyset(&none);
		sigemptyset(&blocked);
		sigaddset(&blocked, SIGUSR1);
		sigprocmask(SIG_BLOCK, &blocked, NULL);
		alarm_in(MS, 0);
		CHECK(epoll_wait(set, found, 8, 30) == 0);
		FAILS(EINTR, epoll_pwait(set, found, 8, -1, &none));
		CHECK(epoll_pwait(set, found, 8, 1, &none) == 0);
		sigprocmask(SIG_UNBLOCK, &blocked, NULL);
		alarm_in(10 * MS, 0);
		CHECK(epoll_pwait(set, found, 8, 30, &blocked) == 0);
		alarm_in(0, 0);
		CHECK(kind || add(set, pair[0], EPOLLOUT | EPOLLONESHOT) == 0);
		CHECK(kind || only(set, pair[0]) == EPOLLOUT);
	}
	syscall(SYS_close_range, 3, ~0U, 0);
}

static void nested(void)
{
	int inner = epoll_create1(0), outer = epoll_create1(0), event = eventfd(0, 0), pair[2], sets[8];
	struct pollfd polled = { inner, POLLIN | POLLOUT, 0 };
	fd_set readable;

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && add(inner, event, EPOLLIN) == 0 && add(inner, pair[0], EPOLLIN) == 0);

	/* poll and select. */
	CHECK(poll(&polled, 1, 0) == 0 && write(event, &one, 8) == 8 && poll(&polled, 1, -1) == 1 && polled.revents == POLLIN);
	CHECK(poll(&polled, 1, -1) == 1 && only(inner, event) == EPOLLIN && read(event, &one, 8) == 8 && poll(&polled, 1, 0) == 0);
	CHECK(write(pair[1], "x", 1) == 1 && poll(&polled, 1, -1) == 1 && polled.revents == POLLIN);
	FD_ZERO(&readable);
	FD_SET(inner, &readable);
	CHECK(select(inner + 1, &readable, NULL, NULL, NULL) == 1 && read(pair[0], &byte, 1) == 1);
	pid_t child = fork();

	if (child == 0) {
		usleep(30000);
		_exit(write(event, &one, 8) != 8);
	}
	CHECK(poll(&polled, 1, -1) == 1 && polled.revents == POLLIN && waitpid(child, NULL, 0) == child && read(event, &one, 8) == 8);

	/* Sets of sets. */
	CHECK(add(outer, inner, EPOLLIN) == 0 && epoll_wait(outer, found, 8, 0) == 0);
	CHECK(write(event, &one, 8) == 8 && only(outer, inner) == EPOLLIN && only(outer, inner) == EPOLLIN);
	CHECK(read(event, &one, 8) == 8 && epoll_wait(outer, found, 8, 0) == 0);
	CHECK(write(pair[1], "x", 1) == 1 && epoll_wait(outer, found, 8, -1) == 1 && read(pair[0], &byte, 1) == 1);
	child = fork();
	if (child == 0) {
		usleep(30000);
		_exit(write(event, &one, 8) != 8);
	}
	CHECK(epoll_wait(outer, found, 8, -1) == 1 && found[0].data.u32 == (uint32_t)inner && waitpid(child, NULL, 0) == child);
	FAILS(EEXIST, add(outer, inner, EPOLLIN));
	FAILS(ELOOP, add(inner, outer, EPOLLIN));
	FAILS(EINVAL, add(outer, outer, EPOLLIN));
	FAILS(EINVAL, add(outer, inner, EPOLLIN | EPOLLEXCLUSIVE));
	CHECK(control(outer, EPOLL_CTL_DEL, inner, 0) == 0 && epoll_wait(outer, found, 8, 0) == 0);
	FAILS(ENOENT, control(outer, EPOLL_CTL_DEL, inner, 0));
	CHECK(add(outer, inner, EPOLLIN) == 0 && close(inner) == 0 && epoll_wait(outer, found, 8, 0) == 0);
	for (int level = 0; level < 8; level++)
		sets[level] = epoll_create1(0);
	for (int level = 1; level < 5; level++)
		CHECK(add(sets[level], sets[level - 1], EPOLLIN) == 0);
	FAILS(ELOOP, add(sets[5], sets[4], EPOLLIN));
	FAILS(ELOOP, add(sets[0], sets[3], EPOLLIN));
	CHECK(add(sets[0], event, EPOLLIN) == 0 && epoll_wait(sets[4], found, 8, -1) == 1 && read(event, &one, 8) == 8);
	CHECK(epoll_wait(sets[4], found, 8, 0) == 0);
	syscall(SYS_close_range, 3, ~0U, 0);
}

static void errors(void)
{
	volatile int negative = -1;
	int set = epoll_create1(0), event = eventfd(0, 0), file = open("/etc/passwd", O_RDONLY), null = open("/dev/null", O_RDWR), ends[2];

	CHECK(set == 3 && event == 4 && file == 5 && null == 6 && pipe(ends) == 0);
	FAILS(EINVAL, epoll_create(0));
	FAILS(EINVAL, epoll_create1(1));
	FAILS(EBADF, add(77, event, EPOLLIN));
	FAILS(EBADF, add(set, 77, EPOLLIN));
	FAILS(EINVAL, add(event, ends[0], EPOLLIN));
	FAILS(EPERM, add(set, file, EPOLLIN));
	FAILS(EPERM, add(set, null, EPOLLIN));
	FAILS(EINVAL, control(set, 7, event, EPOLLIN));
	FAILS(ENOENT, control(set, EPOLL_CTL_MOD, event, EPOLLIN));
	FAILS(ENOENT, control(set, EPOLL_CTL_DEL, event, EPOLLIN));
	FAILS(EFAULT, epoll_ctl(set, EPOLL_CTL_ADD, event, at(16)));
	FAILS(EFAULT, epoll_ctl(set, EPOLL_CTL_ADD, event, NULL));
	CHECK(add(set, event, EPOLLIN) == 0);
	FAILS(EEXIST, add(set, event, EPOLLIN));
	CHECK(epoll_ctl(set, EPOLL_CTL_DEL, event, NULL) == 0);
	FAILS(EINVAL, add(set, event, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT));
	FAILS(EINVAL, add(set, event, EPOLLRDNORM | EPOLLEXCLUSIVE));
	CHECK(add(set, event, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET) == 0);
	FAILS(EINVAL, control(set, EPOLL_CTL_MOD, event, EPOLLIN));
	FAILS(EINVAL, control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLEXCLUSIVE));
	CHECK(write(event, &one, 8) == 8 && only(set, event) == EPOLLIN && only(set, event) == 0);
	FAILS(EINVAL, epoll_wait(set, found, 0, 0));
	FAILS(EINVAL, epoll_wait(set, found, negative, 0));
	FAILS(EFAULT, epoll_wait(set, at(-4096), 1, 0));
	FAILS(EINVAL, epoll_wait(event, found, 1, 0));
	FAILS(EINVAL, epoll_wait(file, found, 1, 0));
	FAILS(EBADF, epoll_wait(77, found, 1, 0));
	FAILS(EINVAL, read(set, &one, 8));
	FAILS(EINVAL, write(set, &one, 8));
	FAILS(EINVAL, epoll_pwait2(set, found, 1, &(struct timespec){ 0, 1000000000 }, NULL));
	FAILS(EFAULT, epoll_pwait2(set, found, 1, at(16), NULL));
	syscall(SYS_close_range, 3, ~0U, 0);
}

/* Of several threads that wait for an edge, one gets it. */
static void threads(void)
{
	int set = epoll_create1(0), event = eventfd(0, EFD_NONBLOCK), sum = 0;
	struct wait waits[3];
	pthread_t threads[3];

	CHECK(add(set, event, EPOLLIN | EPOLLET) == 0);
	woken = 0;
	for (int i = 0; i < 3; i++) {
		waits[i].set = set;
		pthread_create(&threads[i], NULL, waiting, &waits[i]);
	}
	for (int i = 0; i < 3; i++) {
		CHECK(write(event, &one, 8) == 8);
		while (woken == i)
			usleep(1000);
	}
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		sum += waits[i].count;
	}
	CHECK(sum == 3);
	syscall(SYS_close_range, 3, ~0U, 0);
}

/* However many poll a timer, and sets that hold it, all are told. */
#define MANY 40

static int shared_timer;
static int many_woken;

static void *many_waiting(void *argument)
{
	int set = *(int *)argument;
	struct pollfd polled = { set < 0 ? shared_timer : set, POLLIN, 0 };

	if (poll(&polled, 1, -1) == 1 && polled.revents == POLLIN)
		__atomic_fetch_add(&many_woken, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void many(void)
{
	struct itimerspec soon = { { 0, 0 }, { 0, 50000000 } };
	int sets[MANY], outer[MANY], event = eventfd(0, EFD_NONBLOCK), all = 0;
	pthread_t threads[MANY];

	shared_timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	for (int i = 0; i < MANY; i++) {
		sets[i] = i % 2 ? epoll_create1(0) : -1;
		outer[i] = epoll_create1(0);
		if (i % 2)
			all += add(sets[i], shared_timer, EPOLLIN) == 0 && add(sets[i], event, EPOLLIN) == 0 &&
			       add(outer[i], sets[i], EPOLLIN) == 0;
		else
			all += add(outer[i], shared_timer, EPOLLIN) == 0 && add(outer[i], event, EPOLLIN) == 0;
		pthread_create(&threads[i], NULL, many_waiting, &sets[i]);
	}
	CHECK(all == MANY && timerfd_settime(shared_timer, 0, &soon, NULL) == 0);
	for (int i = 0; i < MANY; i++)
		pthread_join(threads[i], NULL);
	CHECK(many_woken == MANY);
	all = 0;
	for (int i = 0; i < MANY; i++)
		all += epoll_wait(outer[i], found, 8, -1) == 1;
	CHECK(all == MANY && read(shared_timer, &one, 8) == 8);
	all = 0;
	for (int i = 0; i < MANY; i++)
		all += epoll_wait(outer[i], found, 8, 0) == 0;
	CHECK(all == MANY);
	/* Who writes sees all of them ready at once. */
	one = 1;
	CHECK(write(event, &one, 8) == 8);
	all = 0;
	for (int i = 0; i < MANY; i++)
		all += epoll_wait(outer[i], found, 8, 0) == 1;
	CHECK(all == MANY && read(event, &one, 8) == 8);
	one = 1;
	syscall(SYS_close_range, 3, ~0U, 0);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		/* The set has come with its members; what is closed by execve is none any more. */
		CHECK(epoll_wait(3, found, 8, -1) == 1 && found[0].data.u32 == 4 && read(4, &one, 8) == 8);
		CHECK(epoll_wait(3, found, 8, 0) == 0 && add(3, eventfd(1, 0), EPOLLIN) == 0 && only(3, 5) == EPOLLIN);
		return finish();
	}
	syscall(SYS_close_range, 3, ~0U, 0);
	local();
	mixed();
	nested();
	errors();
	threads();
	many();

	int set = epoll_create1(0), event = eventfd(1, 0), closed = eventfd(1, EFD_CLOEXEC);

	CHECK(add(set, event, EPOLLIN) == 0 && add(set, closed, EPOLLIN) == 0 && epoll_wait(set, found, 8, 0) == 2);
	if (failures == 0)
		execl("/proc/self/exe", argv[0], "again", NULL);
	return 1;
}
