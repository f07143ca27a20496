// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * epoll over pipes, eventfds, timers and sockets: levels, edges, single reports, sharing, nesting,
 * waiting and errors.
 */
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
#include "moments.h"

#define MS 1000000L

static struct epoll_event found[8];
static uint64_t one = 1;
static char byte;

static int control(int set, int operation, int fd, uint32_t events)
{
	struct epoll_event wanted = { events, { .u64 = 0x100000000 + fd } };

	return epoll_ctl(set, operation, fd, &wanted);
}

static int add(int set, int fd, uint32_t events)
{
	return control(set, EPOLL_CTL_ADD, fd, events);
}

/* The events of a member if a look finds it alone, otherwise the negative number of those found. */
static int only(int set, int fd)
{
	int count = epoll_wait(set, found, 8, 0);

	return count == 1 && found[0].data.u64 == 0x100000000 + (uint64_t)fd ?
		       (int)found[0].events : -count;
}

/* Has SIGUSR1 come, once or each `interval` nanoseconds. */
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

BEFORE_EACH
{
	one = 1;
	syscall(SYS_close_range, 3, ~0U, 0);
}

CASE(a_set_takes_what_was_made_before_it)
{
	int ends[2], full[2], set, event, timer;

	CHECK(pipe(ends) == 0);
	event = eventfd(0, 0);
	timer = timerfd_create(CLOCK_MONOTONIC, 0);
	CHECK(event == 5 && timer == 6);
	CHECK((set = epoll_create1(EPOLL_CLOEXEC)) == 7 && fcntl(set, F_GETFD) == FD_CLOEXEC);
	CHECK(pipe(full) == 0 && full[0] == 8);
	CHECK(add(set, ends[0], EPOLLIN) == 0 && add(set, event, EPOLLIN) == 0 &&
	      add(set, timer, EPOLLIN) == 0);
	CHECK(epoll_wait(set, found, 8, 10) == 0);
}

/*
 * Makes a set that holds a pipe's end for reading, an eventfd and a timer: descriptors 7, 3, 5 and
 * 6.
 */
static void add_all(int *set, int *ends, int *event, int *timer)
{
	CHECK(pipe(ends) == 0);
	*event = eventfd(0, 0);
	*timer = timerfd_create(CLOCK_MONOTONIC, 0);
	*set = epoll_create1(EPOLL_CLOEXEC);
	CHECK(add(*set, ends[0], EPOLLIN) == 0 && add(*set, *event, EPOLLIN) == 0 &&
	      add(*set, *timer, EPOLLIN) == 0);
}

CASE(a_member_is_reported_as_long_as_it_is_ready)
{
	int ends[2], set, event, timer;
	struct itimerspec soon = { { 0, 0 }, { 0, 10 * MS } };

	add_all(&set, ends, &event, &timer);
	CHECK(write(ends[1], "xy", 2) == 2 && only(set, ends[0]) == EPOLLIN &&
	      only(set, ends[0]) == EPOLLIN);
	CHECK(read(ends[0], &byte, 1) == 1 && only(set, ends[0]) == EPOLLIN &&
	      read(ends[0], &byte, 1) == 1 && only(set, ends[0]) == 0);
	CHECK(write(event, &one, 8) == 8 && only(set, event) == EPOLLIN &&
	      read(event, &one, 8) == 8 && only(set, event) == 0);
	CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0 && epoll_wait(set, found, 8, -1) == 1 &&
	      only(set, timer) == EPOLLIN);
	CHECK(read(timer, &one, 8) == 8 && only(set, timer) == 0);
}

/* A wait for one member gives each its turn. */
CASE(ready_members_take_turns)
{
	int ends[2], set, event, timer;

	add_all(&set, ends, &event, &timer);
	one = 1;
	CHECK(write(event, &one, 8) == 8 && write(ends[1], "x", 1) == 1 &&
	      epoll_wait(set, found, 8, 0) == 2);
	CHECK(epoll_wait(set, found, 1, 0) == 1 && epoll_wait(set, found + 1, 1, 0) == 1 &&
	      found[0].data.u64 != found[1].data.u64);
	CHECK(epoll_wait(set, found + 1, 1, 0) == 1 && found[0].data.u64 == found[1].data.u64);
}

CASE(a_report_to_bad_memory_is_not_lost)
{
	int ends[2], set, event, timer;

	add_all(&set, ends, &event, &timer);
	CHECK(write(event, &one, 8) == 8 && write(ends[1], "x", 1) == 1 &&
	      epoll_wait(set, found, 8, 0) == 2);
	FAILS(EFAULT, epoll_wait(set, at(16), 8, 0));
	CHECK(epoll_wait(set, found, 8, 0) == 2);
}

CASE(the_events_of_a_member_can_be_changed)
{
	int ends[2], set, event, timer;

	add_all(&set, ends, &event, &timer);
	CHECK(write(event, &one, 8) == 8 && write(ends[1], "x", 1) == 1 &&
	      epoll_wait(set, found, 8, 0) == 2);
	CHECK(control(set, EPOLL_CTL_MOD, ends[0], 0) == 0 && only(set, event) == EPOLLIN);
	CHECK(control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLRDNORM) == 0 &&
	      control(set, EPOLL_CTL_DEL, event, 0) == 0);
	CHECK(only(set, ends[0]) == (EPOLLIN | EPOLLRDNORM) && read(event, &one, 8) == 8 &&
	      read(ends[0], &byte, 1) == 1);
	CHECK(add(set, event, EPOLLOUT) == 0 && only(set, event) == EPOLLOUT);
	CHECK(control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLOUT | EPOLLET) == 0);
}

CASE(an_edge_of_an_eventfd_is_reported_once)
{
	int ends[2], set, event, timer;

	add_all(&set, ends, &event, &timer);
	CHECK(control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLOUT | EPOLLET) == 0);
	CHECK(only(set, event) == EPOLLOUT && only(set, event) == 0);
	one = 1;
	CHECK(write(event, &one, 8) == 8 && only(set, event) == (EPOLLIN | EPOLLOUT) &&
	      only(set, event) == 0);
	CHECK(write(event, &one, 8) == 8 && only(set, event) == (EPOLLIN | EPOLLOUT) &&
	      only(set, event) == 0);
	CHECK(control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLET) == 0 &&
	      only(set, event) == EPOLLIN && only(set, event) == 0);
	CHECK(read(event, &one, 8) == 8 && one == 2 && only(set, event) == 0);
}

CASE(an_edge_of_a_pipe_is_reported_once)
{
	int full[2];
	int ends[2], set, event, timer;

	add_all(&set, ends, &event, &timer);
	CHECK(pipe(full) == 0);
	CHECK(control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET) == 0 &&
	      write(ends[1], "x", 1) == 1 && only(set, ends[0]) == EPOLLIN);
	CHECK(only(set, ends[0]) == 0 && write(ends[1], "x", 1) == 1 &&
	      only(set, ends[0]) == EPOLLIN && read(ends[0], found, 2) == 2);
	CHECK(add(set, full[1], EPOLLIN | EPOLLOUT | EPOLLET) == 0 &&
	      only(set, full[1]) == EPOLLOUT);
	CHECK(write(full[1], "x", 1) == 1 && only(set, full[1]) == 0 &&
	      control(set, EPOLL_CTL_DEL, full[1], 0) == 0);
}

CASE(an_edge_of_a_timer_is_reported_once)
{
	int ends[2], set, event, timer;
	struct itimerspec soon = { { 0, 0 }, { 0, 10 * MS } };

	add_all(&set, ends, &event, &timer);
	CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0 &&
	      control(set, EPOLL_CTL_MOD, timer, EPOLLIN | EPOLLET) == 0);
	CHECK(epoll_wait(set, found, 8, -1) == 1 && only(set, timer) == 0 &&
	      read(timer, &one, 8) == 8);
}

CASE(a_single_report_has_to_be_asked_for_again)
{
	int ends[2], set, event, timer;

	add_all(&set, ends, &event, &timer);
	one = 1;
	CHECK(control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLONESHOT) == 0 &&
	      write(event, &one, 8) == 8 && only(set, event) == EPOLLIN);
	CHECK(only(set, event) == 0 && write(event, &one, 8) == 8 && only(set, event) == 0);
	CHECK(control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLONESHOT) == 0 &&
	      only(set, event) == EPOLLIN && only(set, event) == 0);
	CHECK(read(event, &one, 8) == 8 && control(set, EPOLL_CTL_DEL, event, 0) == 0);
}

CASE(ends_that_are_gone_are_reported_unasked)
{
	int full[2], set = epoll_create1(0);

	CHECK(pipe(full) == 0);
	CHECK(add(set, full[0], 0) == 0 && only(set, full[0]) == 0 && close(full[1]) == 0 &&
	      only(set, full[0]) == EPOLLHUP);
	CHECK(close(full[0]) == 0 && only(set, full[0]) == 0);
	CHECK(pipe(full) == 0 && add(set, full[1], 0) == 0 && close(full[0]) == 0 &&
	      only(set, full[1]) == EPOLLERR && close(full[1]) == 0);
}

/* Each copy is a member of its own. */
CASE(copies_are_members_until_the_last_is_closed)
{
	int set = epoll_create1(0), event = eventfd(0, 0), copy;

	copy = dup(event);
	one = 1;
	CHECK(copy == 5 && add(set, event, EPOLLIN) == 0 && add(set, copy, EPOLLIN) == 0 &&
	      write(event, &one, 8) == 8);
	CHECK(epoll_wait(set, found, 8, 0) == 2 && close(event) == 0 &&
	      epoll_wait(set, found, 8, 0) == 2);
	CHECK(close(copy) == 0 && epoll_wait(set, found, 8, 0) == 0);
	event = eventfd(1, 0);
	CHECK(event == 4 && only(set, event) == 0 && add(set, event, EPOLLIN) == 0 &&
	      only(set, event) == EPOLLIN);
}

CASE(a_member_can_come_and_go_often)
{
	int set = epoll_create1(0), event = eventfd(1, 0);

	CHECK(add(set, event, EPOLLIN) == 0);
	for (int round = 0; round < 300; round++)
		if (control(set, EPOLL_CTL_DEL, event, 0) || add(set, event, EPOLLIN))
			CHECK(!"added once more");
	CHECK(only(set, event) == EPOLLIN && read(event, &one, 8) == 8);
}

CASE(children_and_copies_share_a_set)
{
	int ends[2], set, event, status;

	CHECK(pipe(ends) == 0);
	event = eventfd(0, 0);
	set = epoll_create1(EPOLL_CLOEXEC);
	CHECK(event == 5 && set == 6 && add(set, event, EPOLLIN) == 0 && eventfd(0, 0) == 7);
	int second = dup(set), third = fcntl(set, F_DUPFD_CLOEXEC, 20);

	CHECK(second == 8 && third == 20 && dup2(set, 30) == 30 && dup3(set, 31, O_CLOEXEC) == 31 &&
	      close(set) == 0);
	pid_t child = fork();

	if (child == 0) {
		close(ends[1]);
		control(30, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLOUT | EPOLLRDNORM);
		one = 1;
		_exit(write(event, &one, 8) == 8 &&
		      only(third, event) == (EPOLLIN | EPOLLOUT) ? 0 : 1);
	}
	CHECK(epoll_wait(second, found, 8, -1) == 1 && waitpid(child, &status, 0) == child &&
	      status == 0);
	CHECK(only(31, event) == (EPOLLIN | EPOLLOUT) && read(event, &one, 8) == 8 &&
	      only(third, event) == EPOLLOUT);
}

CASE(a_number_that_was_a_set_is_none)
{
	int ends[2], set, event;

	CHECK(pipe(ends) == 0);
	event = eventfd(0, 0);
	set = epoll_create1(EPOLL_CLOEXEC);
	CHECK(event == 5 && set == 6 && add(set, event, EPOLLIN) == 0 && eventfd(0, 0) == 7);
	CHECK(dup2(set, 30) == 30 && dup3(set, 31, O_CLOEXEC) == 31 && close(set) == 0);
	FAILS(EBADF, epoll_wait(set, found, 8, 0));
	CHECK(eventfd(0, 0) == set && dup2(set, 30) == 30);
	FAILS(EINVAL, epoll_wait(set, found, 8, 0));
	FAILS(EINVAL, epoll_wait(30, found, 8, 0));
	syscall(SYS_close_range, 7, ~0U, 0);
	FAILS(EBADF, epoll_wait(31, found, 8, 0));
	CHECK(open("/etc/passwd", O_RDONLY) == 7);
	FAILS(EINVAL, epoll_wait(7, found, 8, 0));
}

/*
 * Makes a set that holds files of the realm and of Linux: a pipe's end for reading, an eventfd and
 * a socket.
 */
static void add_mixed(int *set, int *ends, int *event, int *pair)
{
	*set = epoll_create(1);
	*event = eventfd(0, EFD_NONBLOCK);
	CHECK(*set == 3 && pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(add(*set, ends[0], EPOLLIN) == 0 && add(*set, *event, EPOLLIN) == 0 &&
	      add(*set, pair[0], EPOLLIN) == 0);
}

CASE(a_socket_is_added_while_a_thread_waits)
{
	int ends[2], pair[2], set = epoll_create(1), event = eventfd(0, EFD_NONBLOCK);
	struct wait wait = { set, 0, { { 0 } } };
	pthread_t thread;

	CHECK(set == 3 && pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(add(set, ends[0], EPOLLIN) == 0 && add(set, event, EPOLLIN) == 0);
	pthread_create(&thread, NULL, waiting, &wait);
	usleep(20000);
	CHECK(add(set, pair[0], EPOLLIN) == 0 && write(pair[1], "x", 1) == 1 &&
	      pthread_join(thread, NULL) == 0);
	CHECK(wait.count == 1 && wait.found[0].data.u32 == (uint32_t)pair[0] &&
	      only(set, pair[0]) == EPOLLIN);
}

CASE(local_and_remote_members_are_reported_together)
{
	int ends[2], pair[2], set, event;

	add_mixed(&set, ends, &event, pair);
	CHECK(write(pair[1], "x", 1) == 1 && only(set, pair[0]) == EPOLLIN);
	CHECK(write(event, &one, 8) == 8 && epoll_wait(set, found, 8, -1) == 2 &&
	      epoll_wait(set, found, 1, -1) == 1);
	CHECK(read(pair[0], &byte, 1) == 1 && only(set, event) == EPOLLIN &&
	      read(event, &one, 8) == 8 && only(set, event) == 0);
	FAILS(EEXIST, add(set, pair[0], EPOLLIN));
}

CASE(local_and_remote_members_end_a_wait)
{
	int ends[2], pair[2], set, event, status;

	add_mixed(&set, ends, &event, pair);
	for (int kind = 0; kind < 2; kind++) {
		pid_t child = fork();

		if (child == 0) {
			usleep(30000);
			_exit(write(kind ? pair[1] : ends[1], "x", 1) == 1 ? 0 : 1);
		}
		CHECK(epoll_wait(set, found, 8, -1) == 1 &&
		      found[0].data.u32 == (uint32_t)(kind ? pair[0] : ends[0]));
		CHECK(waitpid(child, &status, 0) == child && status == 0 &&
		      read(kind ? pair[0] : ends[0], &byte, 1) == 1);
	}
}

CASE(edges_and_single_reports_of_local_and_remote_members)
{
	int ends[2], pair[2], set, event;

	add_mixed(&set, ends, &event, pair);
	CHECK(control(set, EPOLL_CTL_MOD, pair[0], EPOLLIN | EPOLLET) == 0 &&
	      control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLET) == 0);
	CHECK(write(pair[1], "x", 1) == 1 && write(ends[1], "x", 1) == 1 &&
	      epoll_wait(set, found, 8, 0) == 2 && epoll_wait(set, found, 8, 0) == 0);
	CHECK(control(set, EPOLL_CTL_MOD, pair[0], EPOLLIN | EPOLLONESHOT) == 0 &&
	      only(set, pair[0]) == EPOLLIN && only(set, pair[0]) == 0);
	CHECK(control(set, EPOLL_CTL_MOD, ends[0], EPOLLIN | EPOLLONESHOT) == 0 &&
	      only(set, ends[0]) == EPOLLIN && only(set, ends[0]) == 0);
}

CASE(a_wait_with_a_remote_member_ends_in_time)
{
	int ends[2], pair[2], set, event;

	add_mixed(&set, ends, &event, pair);
	int64_t start = shown(CLOCK_MONOTONIC);

	CHECK(epoll_wait(set, found, 8, 20) == 0 && shown(CLOCK_MONOTONIC) >= start + 20 * MS);
	start = shown(CLOCK_MONOTONIC);
	CHECK(epoll_pwait2(set, found, 8, &(struct timespec){ 0, 5 * MS / 2 }, NULL) == 0 &&
	      shown(CLOCK_MONOTONIC) >= start + 5 * MS / 2);
}

CASE(a_wait_without_its_remote_member_ends_in_time)
{
	int ends[2], pair[2], set, event;

	add_mixed(&set, ends, &event, pair);
	CHECK(control(set, EPOLL_CTL_DEL, pair[0], 0) == 0);
	FAILS(ENOENT, control(set, EPOLL_CTL_DEL, pair[0], 0));
	int64_t start = shown(CLOCK_MONOTONIC);

	CHECK(epoll_wait(set, found, 8, 20) == 0 && shown(CLOCK_MONOTONIC) >= start + 20 * MS);
	start = shown(CLOCK_MONOTONIC);
	CHECK(epoll_pwait2(set, found, 8, &(struct timespec){ 0, 5 * MS / 2 }, NULL) == 0 &&
	      shown(CLOCK_MONOTONIC) >= start + 5 * MS / 2);
}

/* The set has no remote member at first, and then it has one. */
CASE(signals_end_a_wait_whatever_their_handler_says)
{
	int ends[2], pair[2], set, event;

	add_mixed(&set, ends, &event, pair);
	CHECK(control(set, EPOLL_CTL_DEL, pair[0], 0) == 0);
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
}

/* Makes a set that holds an eventfd and a socket. */
static void add_two(int *inner, int *event, int *pair)
{
	*inner = epoll_create1(0);
	*event = eventfd(0, 0);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && add(*inner, *event, EPOLLIN) == 0 &&
	      add(*inner, pair[0], EPOLLIN) == 0);
}

CASE(poll_tells_that_a_set_is_ready)
{
	int inner, event, pair[2];
	struct pollfd polled;

	add_two(&inner, &event, pair);
	polled = (struct pollfd){ inner, POLLIN | POLLOUT, 0 };
	CHECK(poll(&polled, 1, 0) == 0 && write(event, &one, 8) == 8 && poll(&polled, 1, -1) == 1 &&
	      polled.revents == POLLIN);
	CHECK(poll(&polled, 1, -1) == 1 && only(inner, event) == EPOLLIN &&
	      read(event, &one, 8) == 8 && poll(&polled, 1, 0) == 0);
	CHECK(write(pair[1], "x", 1) == 1 && poll(&polled, 1, -1) == 1 && polled.revents == POLLIN);
}

CASE(select_tells_that_a_set_is_ready)
{
	int inner, event, pair[2];
	fd_set readable;

	add_two(&inner, &event, pair);
	CHECK(write(pair[1], "x", 1) == 1);
	FD_ZERO(&readable);
	FD_SET(inner, &readable);
	CHECK(select(inner + 1, &readable, NULL, NULL, NULL) == 1 && read(pair[0], &byte, 1) == 1);
}

CASE(poll_waits_for_a_set)
{
	int inner, event, pair[2];
	struct pollfd polled;

	add_two(&inner, &event, pair);
	polled = (struct pollfd){ inner, POLLIN | POLLOUT, 0 };
	pid_t child = fork();

	if (child == 0) {
		usleep(30000);
		_exit(write(event, &one, 8) != 8);
	}
	CHECK(poll(&polled, 1, -1) == 1 && polled.revents == POLLIN &&
	      waitpid(child, NULL, 0) == child && read(event, &one, 8) == 8);
}

CASE(a_set_is_a_member_of_a_set)
{
	int inner, outer = epoll_create1(0), event, pair[2];

	add_two(&inner, &event, pair);
	CHECK(add(outer, inner, EPOLLIN) == 0 && epoll_wait(outer, found, 8, 0) == 0);
	CHECK(write(event, &one, 8) == 8 && only(outer, inner) == EPOLLIN &&
	      only(outer, inner) == EPOLLIN);
	CHECK(read(event, &one, 8) == 8 && epoll_wait(outer, found, 8, 0) == 0);
	CHECK(write(pair[1], "x", 1) == 1 && epoll_wait(outer, found, 8, -1) == 1 &&
	      read(pair[0], &byte, 1) == 1);
	pid_t child = fork();

	if (child == 0) {
		usleep(30000);
		_exit(write(event, &one, 8) != 8);
	}
	CHECK(epoll_wait(outer, found, 8, -1) == 1 && found[0].data.u32 == (uint32_t)inner &&
	      waitpid(child, NULL, 0) == child);
}

CASE(bad_sets_of_sets_are_refused)
{
	int inner, outer = epoll_create1(0), event, pair[2];

	add_two(&inner, &event, pair);
	CHECK(add(outer, inner, EPOLLIN) == 0);
	FAILS(EEXIST, add(outer, inner, EPOLLIN));
	FAILS(ELOOP, add(inner, outer, EPOLLIN));
	FAILS(EINVAL, add(outer, outer, EPOLLIN));
	FAILS(EINVAL, add(outer, inner, EPOLLIN | EPOLLEXCLUSIVE));
}

/* The inner set is taken out, and then closed. One of its members is ready. */
CASE(a_set_leaves_a_set)
{
	int inner, outer = epoll_create1(0), event, pair[2];

	add_two(&inner, &event, pair);
	CHECK(add(outer, inner, EPOLLIN) == 0 && write(event, &one, 8) == 8 &&
	      only(outer, inner) == EPOLLIN);
	CHECK(control(outer, EPOLL_CTL_DEL, inner, 0) == 0 && epoll_wait(outer, found, 8, 0) == 0);
	FAILS(ENOENT, control(outer, EPOLL_CTL_DEL, inner, 0));
	CHECK(add(outer, inner, EPOLLIN) == 0 && close(inner) == 0 &&
	      epoll_wait(outer, found, 8, 0) == 0);
}

CASE(sets_lie_in_sets_five_deep)
{
	int event = eventfd(1, 0), sets[8];

	for (int level = 0; level < 8; level++)
		sets[level] = epoll_create1(0);
	for (int level = 1; level < 5; level++)
		CHECK(add(sets[level], sets[level - 1], EPOLLIN) == 0);
	FAILS(ELOOP, add(sets[5], sets[4], EPOLLIN));
	FAILS(ELOOP, add(sets[0], sets[3], EPOLLIN));
	CHECK(add(sets[0], event, EPOLLIN) == 0 && epoll_wait(sets[4], found, 8, -1) == 1 &&
	      read(event, &one, 8) == 8);
	CHECK(epoll_wait(sets[4], found, 8, 0) == 0);
}

/* What is to be refused, and what is not. */
static int set, event, file, null;

static void open_all(void)
{
	int ends[2];

	set = epoll_create1(0);
	event = eventfd(0, 0);
	file = open("/etc/passwd", O_RDONLY);
	null = open("/dev/null", O_RDWR);
	CHECK(set == 3 && event == 4 && file == 5 && null == 6 && pipe(ends) == 0 && ends[0] == 7);
}

CASE(bad_sets_are_not_made)
{
	FAILS(EINVAL, epoll_create(0));
	FAILS(EINVAL, epoll_create1(1));
}

CASE(bad_members_are_refused)
{
	open_all();
	FAILS(EBADF, add(77, event, EPOLLIN));
	FAILS(EBADF, add(set, 77, EPOLLIN));
	FAILS(EINVAL, add(event, 7, EPOLLIN));
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
}

CASE(a_member_for_one_waiter_cannot_be_changed)
{
	open_all();
	FAILS(EINVAL, add(set, event, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT));
	FAILS(EINVAL, add(set, event, EPOLLRDNORM | EPOLLEXCLUSIVE));
	CHECK(add(set, event, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET) == 0);
	FAILS(EINVAL, control(set, EPOLL_CTL_MOD, event, EPOLLIN));
	FAILS(EINVAL, control(set, EPOLL_CTL_MOD, event, EPOLLIN | EPOLLEXCLUSIVE));
	CHECK(write(event, &one, 8) == 8 && only(set, event) == EPOLLIN && only(set, event) == 0);
}

CASE(bad_waits_are_refused)
{
	volatile int negative = -1;

	open_all();
	FAILS(EINVAL, epoll_wait(set, found, 0, 0));
	FAILS(EINVAL, epoll_wait(set, found, negative, 0));
	FAILS(EFAULT, epoll_wait(set, at(-4096), 1, 0));
	FAILS(EINVAL, epoll_wait(event, found, 1, 0));
	FAILS(EINVAL, epoll_wait(file, found, 1, 0));
	FAILS(EBADF, epoll_wait(77, found, 1, 0));
	FAILS(EINVAL, epoll_pwait2(set, found, 1, &(struct timespec){ 0, 1000000000 }, NULL));
	FAILS(EFAULT, epoll_pwait2(set, found, 1, at(16), NULL));
}

CASE(a_set_cannot_be_read_or_written)
{
	open_all();
	FAILS(EINVAL, read(set, &one, 8));
	FAILS(EINVAL, write(set, &one, 8));
}

CASE(an_edge_is_for_one_of_several_threads)
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
}

static volatile int looks_end;

static void *look_again_and_again(void *argument)
{
	struct epoll_event other[8];

	while (!looks_end)
		epoll_wait(*(int *)argument, other, 8, 0);
	return NULL;
}

/* The member is ready all the time. */
CASE(a_set_is_ready_also_while_a_thread_looks_at_it)
{
	int set = epoll_create1(0), event = eventfd(1, 0), always = 1;
	pthread_t thread;

	CHECK(add(set, event, EPOLLIN) == 0);
	looks_end = 0;
	CHECK(pthread_create(&thread, NULL, look_again_and_again, &set) == 0);
	if (sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ .sched_priority = 10 }))
		always = 0;
	for (int i = 0; i < 400 && always; i++) {
		struct timespec moment = { 0, 50000 + i % 100 * 1000 };

		nanosleep(&moment, NULL);
		always &= ready(set, POLLIN, 0) == POLLIN;
	}
	looks_end = 1;
	pthread_join(thread, NULL);
	CHECK(always);
}

/* Sets that share a file, and a thread for each. */
#define SHARING 4

/*
 * Each time that the file becomes ready, one of those who wait for their sets is woken for all of
 * them, and who waits for another set as well. `again` makes it ready.
 */
static void wakes_one_at_a_time(int file, void again(int file))
{
	struct wait waits[SHARING + 1];
	pthread_t threads[SHARING + 1];

	woken = 0;
	for (int i = 0; i <= SHARING; i++) {
		waits[i].set = epoll_create1(0);
		CHECK(add(waits[i].set, file, EPOLLIN | (i < SHARING ? EPOLLEXCLUSIVE : 0)) == 0);
		pthread_create(&threads[i], NULL, waiting, &waits[i]);
	}
	usleep(300000);
	for (int i = 0; i < SHARING; i++) {
		PART("time %d", i);
		again(file);
		while (woken < i + 2)
			usleep(1000);
		usleep(100000);
		CHECK(woken == i + 2);
	}
	for (int i = 0; i <= SHARING; i++) {
		pthread_join(threads[i], NULL);
		CHECK(waits[i].count == 1 && waits[i].found[0].events == EPOLLIN);
	}
}

static void write_to(int event)
{
	uint64_t count = 1;

	CHECK(write(event, &count, sizeof(count)) == sizeof(count));
}

static void set_soon(int timer)
{
	const struct itimerspec soon = { { 0, 0 }, { 0, 10 * MS } };

	CHECK(timerfd_settime(timer, 0, &soon, NULL) == 0);
}

/* A set within a set that nobody waits for does not keep others from being told. */
CASE(who_shares_and_waits_is_woken)
{
	int event = eventfd(0, EFD_NONBLOCK), inner[2], outer = epoll_create1(0);
	struct wait wait = { .set = epoll_create1(0) };
	pthread_t thread;

	for (int i = 0; i < 2; i++) {
		inner[i] = epoll_create1(0);
		CHECK(add(outer, inner[i], EPOLLIN) == 0);
	}
	CHECK(add(inner[0], event, EPOLLIN | EPOLLEXCLUSIVE) == 0);
	CHECK(add(wait.set, event, EPOLLIN | EPOLLEXCLUSIVE) == 0);
	CHECK(add(inner[1], event, EPOLLIN | EPOLLEXCLUSIVE) == 0);
	woken = 0;
	CHECK(pthread_create(&thread, NULL, waiting, &wait) == 0);
	usleep(300000);
	write_to(event);
	CHECK(pthread_join(thread, NULL) == 0 && wait.count == 1);
}

CASE(one_of_those_who_share_is_woken)
{
	wakes_one_at_a_time(eventfd(0, EFD_NONBLOCK), write_to);
	/* In an interrupt. */
	wakes_one_at_a_time(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), set_soon);
}

/* How many threads poll. */
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

/* Some poll the timer itself, others a set that holds it. */
CASE(all_who_poll_a_timer_are_told)
{
	struct itimerspec soon = { { 0, 0 }, { 0, 50000000 } };
	int sets[MANY], outer[MANY], event = eventfd(0, EFD_NONBLOCK), all = 0;
	pthread_t threads[MANY];

	shared_timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	for (int i = 0; i < MANY; i++) {
		sets[i] = i % 2 ? epoll_create1(0) : -1;
		outer[i] = epoll_create1(0);
		if (i % 2)
			all += add(sets[i], shared_timer, EPOLLIN) == 0 &&
			       add(sets[i], event, EPOLLIN) == 0 &&
			       add(outer[i], sets[i], EPOLLIN) == 0;
		else
			all += add(outer[i], shared_timer, EPOLLIN) == 0 &&
			       add(outer[i], event, EPOLLIN) == 0;
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
}

/* The set has come with its members. What execve has closed is none any more. */
ROLE(again)
{
	CHECK(epoll_wait(3, found, 8, -1) == 1 && found[0].data.u32 == 4 && read(4, &one, 8) == 8);
	CHECK(epoll_wait(3, found, 8, 0) == 0 && add(3, eventfd(1, 0), EPOLLIN) == 0 &&
	      only(3, 5) == EPOLLIN);
	return 0;
}

CASE(execve_keeps_a_set_and_its_members)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		int set = epoll_create1(0), event = eventfd(1, 0), closed = eventfd(1, EFD_CLOEXEC);

		CHECK(add(set, event, EPOLLIN) == 0 && add(set, closed, EPOLLIN) == 0 &&
		      epoll_wait(set, found, 8, 0) == 2);
		execl("/proc/self/exe", "again", NULL);
		_exit(100);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}
