// SPDX-License-Identifier: MIT OR Apache-2.0
/* poll and select over files of the realm and of Linux at once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "children.h"
#include "moments.h"
#include "waiting.h"

static int ends[2], pair[2], event, null;

/* Starts a child that writes this after a while. */
static pid_t later(int fd, const void *data, int length)
{
	pid_t child = fork();

	if (child == 0) {
		usleep(60000);
		_exit(write(fd, data, length) == length ? 0 : 1);
	}
	return child;
}

BEFORE_EACH
{
	caught = 0;
	CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	event = eventfd(0, 0);
	null = open("/dev/null", O_RDWR);
}

CASE(poll_waits_as_long_as_it_is_told_to)
{
	struct pollfd set[4] = { { ends[0], POLLIN, 0 },
				 { pair[0], POLLIN, 0 },
				 { event, POLLIN, 0 },
				 { -1, POLLIN, 7 } };
	long before;

	CHECK(poll(set, 4, 0) == 0 && set[0].revents == 0 && set[3].revents == 0);
	before = milliseconds();
	CHECK(poll(set, 4, 50) == 0 && milliseconds() - before >= 49);
	CHECK(poll(set, 1, 20) == 0 && poll(set + 1, 1, 20) == 0 && poll(NULL, 0, 10) == 0);
}

CASE(a_pipe_ends_a_poll)
{
	struct pollfd set[4] = { { ends[0], POLLIN, 0 },
				 { pair[0], POLLIN, 0 },
				 { event, POLLIN, 0 },
				 { -1, POLLIN, 7 } };
	char byte;
	pid_t child;

	child = later(ends[1], "a", 1);
	CHECK(poll(set, 4, 60000) == 1 && set[0].revents == POLLIN && set[1].revents == 0 &&
	      exits_with(child, 0));
	CHECK(read(ends[0], &byte, 1) == 1);
}

CASE(a_socket_ends_a_poll)
{
	struct pollfd set[4] = { { ends[0], POLLIN, 0 },
				 { pair[0], POLLIN, 0 },
				 { event, POLLIN, 0 },
				 { -1, POLLIN, 7 } };
	pid_t child;

	child = later(pair[1], "b", 1);
	CHECK(poll(set, 4, -1) == 1 && set[1].revents == POLLIN && set[0].revents == 0 &&
	      exits_with(child, 0));
}

/* It does so alone and beside a socket that is ready. */
CASE(an_eventfd_ends_a_poll)
{
	struct pollfd set[4] = { { ends[0], POLLIN, 0 },
				 { pair[0], POLLIN, 0 },
				 { event, POLLIN, 0 },
				 { -1, POLLIN, 7 } };
	uint64_t one = 1;
	char byte;
	pid_t child;

	CHECK(write(pair[1], "b", 1) == 1);
	child = later(event, &one, 8);
	CHECK(exits_with(child, 0) && poll(set, 4, -1) == 2 && set[1].revents == POLLIN &&
	      set[2].revents == POLLIN);
	CHECK(read(event, &one, 8) == 8 && read(pair[0], &byte, 1) == 1);
	child = later(event, &one, 8);
	CHECK(poll(set, 4, -1) == 1 && set[2].revents == POLLIN && exits_with(child, 0) &&
	      read(event, &one, 8) == 8);
}

/* The files are writers, always ready, or not there. */
CASE(poll_tells_what_is_ready_at_once)
{
	struct pollfd other[5] = { { ends[1], POLLOUT | POLLIN, 0 },
				   { pair[0], POLLOUT, 0 },
				   { null, POLLIN | POLLOUT, 0 },
				   { 77, POLLIN, 0 },
				   { event, POLLIN | POLLOUT, 0 } };

	CHECK(poll(other, 5, 1000) == 5 && other[0].revents == POLLOUT &&
	      other[1].revents == POLLOUT);
	CHECK(other[2].revents == (POLLIN | POLLOUT) && other[3].revents == POLLNVAL &&
	      other[4].revents == POLLOUT);
	CHECK(poll(other + 3, 1, 1000) == 1 && other[3].revents == POLLNVAL);
}

CASE(poll_takes_a_file_twice)
{
	struct pollfd set[4] = { { ends[0], POLLIN, 0 },
				 { pair[0], POLLIN, 0 },
				 { event, POLLIN, 0 },
				 { -1, POLLIN, 7 } };
	char byte;

	set[1] = set[0];
	CHECK(write(ends[1], "c", 1) == 1 && poll(set, 2, -1) == 2 && set[1].revents == POLLIN &&
	      read(ends[0], &byte, 1) == 1);
}

CASE(bad_polls_are_refused)
{
	struct pollfd set[4] = { { ends[0], POLLIN, 0 },
				 { pair[0], POLLIN, 0 },
				 { event, POLLIN, 0 },
				 { -1, POLLIN, 7 } };

	FAILS(EFAULT, poll(at(16), 1, 0));
	FAILS(EINVAL, syscall(SYS_poll, set, 1u << 30, 0));
}

/*
 * SA_RESTART does not change that. The signal comes again and again, because the first may come
 * before the wait begins.
 */
CASE(a_handler_ends_a_poll)
{
	struct pollfd set[2] = { { ends[0], POLLIN, 0 }, { pair[0], POLLIN, 0 } };
	struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };

	sigaction(SIGALRM, &action, NULL);
	ualarm(30000, 30000);
	FAILS(EINTR, poll(set, 1, 60000));
	caught = 0;
	FAILS(EINTR, poll(set, 2, 60000));
	CHECK(caught == SIGALRM);
	ualarm(0, 0);
}

CASE(ppoll_opens_the_mask_while_it_waits)
{
	struct pollfd set[2] = { { ends[0], POLLIN, 0 }, { pair[0], POLLIN, 0 } };
	struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
	struct timespec time = { 0, 40000000 };
	sigset_t blocked, none, old;

	sigaction(SIGALRM, &action, NULL);
	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGALRM);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	caught = 0;
	CHECK(ppoll(set, 2, &time, NULL) == 0 && ppoll(set, 1, &time, &none) == 0);
	ualarm(30000, 0);
	FAILS(EINTR, ppoll(set, 1, NULL, &none));
	CHECK(caught == SIGALRM);
	caught = 0;
	ualarm(30000, 0);
	usleep(60000);
	CHECK(caught == 0);
	FAILS(EINTR, ppoll(set, 2, NULL, &none));
	CHECK(caught == SIGALRM && sigprocmask(SIG_BLOCK, NULL, &old) == 0 &&
	      sigismember(&old, SIGALRM));
	sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

CASE(bad_masks_and_times_are_refused)
{
	struct pollfd set[2] = { { ends[0], POLLIN, 0 }, { pair[0], POLLIN, 0 } };
	struct timespec time = { 0, 40000000 };
	sigset_t none;

	sigemptyset(&none);
	FAILS(EINVAL, syscall(SYS_ppoll, set, 1, NULL, &none, 4));
	time.tv_nsec = 2000000000;
	FAILS(EINVAL, ppoll(set, 1, &time, NULL));
}

CASE(select_waits_as_long_as_it_is_told_to)
{
	fd_set in;
	struct timeval time = { 0, 30000 };

	FD_ZERO(&in);
	FD_SET(ends[0], &in);
	FD_SET(pair[0], &in);
	CHECK(select(pair[1] + 1, &in, NULL, NULL, &time) == 0 && !FD_ISSET(ends[0], &in) &&
	      !FD_ISSET(pair[0], &in));
	CHECK(time.tv_sec == 0 && time.tv_usec == 0);
}

CASE(select_tells_what_is_ready_at_once)
{
	fd_set in, out, except;

	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_ZERO(&except);
	FD_SET(ends[0], &in);
	FD_SET(ends[1], &out);
	FD_SET(pair[0], &in);
	FD_SET(pair[0], &out);
	FD_SET(event, &except);
	CHECK(select(100, &in, &out, &except, NULL) == 2 && FD_ISSET(ends[1], &out) &&
	      FD_ISSET(pair[0], &out));
	CHECK(!FD_ISSET(ends[0], &in) && !FD_ISSET(pair[0], &in) && !FD_ISSET(event, &except));
}

CASE(a_pipe_ends_a_select)
{
	fd_set in;
	char byte;

	FD_ZERO(&in);
	FD_SET(ends[0], &in);
	FD_SET(pair[0], &in);
	pid_t child = later(ends[1], "x", 1);

	CHECK(select(100, &in, NULL, NULL, NULL) == 1 && FD_ISSET(ends[0], &in) &&
	      !FD_ISSET(pair[0], &in));
	CHECK(read(ends[0], &byte, 1) == 1 && exits_with(child, 0));
}

CASE(a_socket_ends_a_select)
{
	fd_set in;
	char byte;

	pid_t child;

	FD_ZERO(&in);
	FD_SET(ends[0], &in);
	FD_SET(pair[0], &in);
	child = later(pair[1], "x", 1);
	CHECK(select(100, &in, NULL, NULL, NULL) == 1 && FD_ISSET(pair[0], &in) &&
	      !FD_ISSET(ends[0], &in));
	CHECK(read(pair[0], &byte, 1) == 1 && exits_with(child, 0));
}

CASE(bad_selects_are_refused)
{
	fd_set in;
	struct timeval time = { 0, 30000 };

	FD_ZERO(&in);
	FD_SET(50, &in);
	FD_SET(ends[0], &in);
	FAILS(EBADF, select(100, &in, NULL, NULL, NULL));
	FAILS(EINVAL, select(-1, &in, NULL, NULL, NULL));
	time.tv_usec = -1;
	FAILS(EINVAL, select(100, NULL, NULL, NULL, &time));
}

CASE(pselect_waits_as_long_as_it_is_told_to)
{
	fd_set in;

	struct timespec span = { 0, 20000000 };

	FD_ZERO(&in);
	FD_SET(ends[0], &in);
	CHECK(pselect(100, &in, NULL, NULL, &span, NULL) == 0);
}

/* Two processes wake each other. */
CASE(each_of_many_wake_ups_arrives)
{
	uint64_t value;

	int right = 1, status;
	pid_t child = fork();

	if (child == 0) {
		for (int i = 0; i < 200; i++) {
			struct pollfd set[2] = { { ends[0], POLLIN, 0 }, { pair[0], POLLIN, 0 } };
			char byte;

			if (poll(set, 1 + i % 2, 60000) != 1 || read(ends[0], &byte, 1) != 1)
				_exit(1);
			value = 1;
			write(event, &value, 8);
		}
		_exit(0);
	}
	for (int i = 0; i < 200; i++)
		right &= write(ends[1], "x", 1) == 1 && read(event, &value, 8) == 8 && value == 1;
	CHECK(right && waitpid(child, &status, 0) == child && status == 0);
}

/* How many bytes come one by one. Somewhat later comes one more. */
#define BYTES 20

static void *write_bytes(void *unused)
{
	struct timespec moment = { 0, 2000000 };

	for (int i = 0; i < BYTES; i++)
		write(ends[1], "x", 1);
	nanosleep(&moment, NULL);
	write(pair[1], "y", 1);
	return unused;
}

CASE(a_wake_up_that_comes_too_late_does_not_end_the_next_wait)
{
	int right = 1;

	for (int i = 0; i < 50; i++) {
		struct pollfd set[2] = { { ends[0], POLLIN, 0 }, { pair[0], POLLIN, 0 } };
		pthread_t thread;
		char bytes[BYTES];

		right &= pthread_create(&thread, NULL, write_bytes, NULL) == 0;
		right &= poll(set, 2, -1) >= 1 && set[0].revents == POLLIN;
		right &= read(pair[0], bytes, 1) == 1 && pthread_join(thread, NULL) == 0;
		right &= read(ends[0], bytes, BYTES) == BYTES;
	}
	CHECK(right);
}

static int tube, set;
static volatile int handled_by;

static void note_thread(int signal)
{
	(void)signal;
	handled_by = syscall(SYS_gettid);
}

/* Starts a child that sends this process a signal, each time after a while. */
static pid_t signal_later(int signal, int times)
{
	pid_t parent = getpid(), child = fork();

	if (child == 0) {
		for (int i = 0; i < times; i++) {
			usleep(60000);
			kill(parent, signal);
		}
		_exit(0);
	}
	return child;
}

/* A local file that ppoll and pselect wait for as well, or -1. */
static int local = -1;

/*
 * Waits for what only Linux has, and returns what the call does. The ways 0 to 3 are ppoll,
 * pselect, epoll_pwait and epoll_pwait2.
 */
static int wait_remote(int way, int milliseconds, const sigset_t *mask)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000 };
	struct pollfd members[] = {
		{ pair[0], POLLIN, 0 }, { tube, POLLIN, 0 }, { local, POLLIN, 0 },
	};
	struct epoll_event found[2];
	fd_set in;

	FD_ZERO(&in);
	FD_SET(pair[0], &in);
	FD_SET(tube, &in);
	if (local >= 0)
		FD_SET(local, &in);
	switch (way) {
	case 0:
		return ppoll(members, 3, &time, mask);
	case 1:
		return pselect(64, &in, NULL, NULL, &time, mask);
	case 2:
		return epoll_pwait(set, found, 2, milliseconds, mask);
	default:
		return syscall(SYS_epoll_pwait2, set, found, 2, &time, mask, 8);
	}
}

/*
 * Makes a pipe that only Linux has, and a set that holds it and a socket. The signals have
 * handlers.
 */
static void open_remotes(void)
{
	char name[] = "/tmp/poll-XXXXXX";
	struct epoll_event event = { EPOLLIN, { 0 } };

	CHECK(mkdtemp(name) && chdir(name) == 0 && mkfifo("fifo", 0600) == 0);
	tube = open("fifo", O_RDWR);
	set = epoll_create1(0);
	CHECK(tube > 0 && epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event) == 0 &&
	      epoll_ctl(set, EPOLL_CTL_ADD, tube, &event) == 0);
	CHECK(unlink("fifo") == 0 && rmdir(name) == 0);
	signal(SIGUSR1, note);
	signal(SIGALRM, note);
}

CASE(a_poll_of_remote_files_ends_in_time)
{
	struct pollfd members[3] = { { pair[0], POLLIN, 0 }, { 0, POLLIN, 0 }, { -1, POLLIN, 0 } };
	struct timespec time = { 0, 30000000 };
	long before;

	open_remotes();
	members[1].fd = tube;
	before = milliseconds();
	CHECK(poll(members, 3, 0) == 0 && poll(members, 3, 50) == 0 &&
	      milliseconds() - before >= 49);
	CHECK(ppoll(members, 3, &time, NULL) == 0);
}

CASE(remote_files_end_a_poll)
{
	struct pollfd members[3] = { { pair[0], POLLIN, 0 }, { 0, POLLIN, 0 }, { -1, POLLIN, 0 } };
	char byte;
	pid_t child;

	open_remotes();
	members[1].fd = tube;
	child = later(tube, "x", 1);
	CHECK(poll(members, 3, -1) == 1 && members[1].revents == POLLIN && exits_with(child, 0) &&
	      read(tube, &byte, 1) == 1);
	child = later(pair[1], "x", 1);
	CHECK(poll(members, 3, 60000) == 1 && members[0].revents == POLLIN &&
	      exits_with(child, 0) && read(pair[0], &byte, 1) == 1);
}

CASE(a_handler_ends_a_poll_of_remote_files)
{
	struct pollfd members[3] = { { pair[0], POLLIN, 0 }, { 0, POLLIN, 0 }, { -1, POLLIN, 0 } };

	open_remotes();
	members[1].fd = tube;
	ualarm(30000, 30000);
	FAILS(EINTR, poll(members, 3, 60000));
	FAILS(EINTR, poll(members, 3, -1));
	ualarm(0, 0);
}

/* Two signals are blocked but in the wait. */
static void blocked_outside(int way)
{
	sigset_t none, blocked, old;
	pid_t child;

	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGALRM);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);

	caught = 0;
	ualarm(30000, 0);
	FAILS(EINTR, wait_remote(way, 60000, &none));
	CHECK(caught == SIGALRM && sigprocmask(SIG_BLOCK, NULL, &old) == 0 &&
	      sigismember(&old, SIGALRM));
	child = signal_later(SIGUSR1, 1);
	caught = 0;
	FAILS(EINTR, wait_remote(way, 60000, &none));
	CHECK(caught == SIGUSR1 && exits_with(child, 0));
	/* It was there before. */
	caught = 0;
	kill(getpid(), SIGUSR1);
	CHECK(wait_remote(way, 20, NULL) == 0 && caught == 0);
	FAILS(EINTR, wait_remote(way, 60000, &none));
	CHECK(caught == SIGUSR1);
	sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

/* What is ready comes before a signal that the mask of the call lets in, which stays pending. */
static void ready_before_signal(int way)
{
	sigset_t none, blocked, pending;

	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	caught = 0;
	kill(getpid(), SIGUSR1);
	CHECK(write(pair[1], "x", 1) == 1 && wait_remote(way, 60000, &none) == 1 && caught == 0);
	CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
	CHECK(wait_remote(way, 0, &none) == 1 && caught == 0);
	CHECK(read(pair[0], &(char){ 0 }, 1) == 1);
	FAILS(EINTR, wait_remote(way, 60000, &none));
	CHECK(caught == SIGUSR1 && wait_remote(way, 0, &none) == 0);
	sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

/* All signals are blocked in the wait alone. */
static void blocked_inside(int way)
{
	sigset_t all, old;
	pid_t child;
	long before;

	sigfillset(&all);
	caught = 0;
	ualarm(20000, 0);
	before = milliseconds();
	CHECK(wait_remote(way, 100, &all) == 0 && milliseconds() - before >= 99 &&
	      caught == SIGALRM);
	child = later(pair[1], "x", 1);
	CHECK(wait_remote(way, 60000, &all) == 1 && read(pair[0], &(char){ 0 }, 1) == 1 &&
	      exits_with(child, 0));
	sigprocmask(SIG_BLOCK, NULL, &old);
	CHECK(!sigismember(&old, SIGALRM) && !sigismember(&old, SIGTERM));
}

CASE(ppoll_opens_the_mask_for_remote_files)
{
	open_remotes();
	blocked_outside(0);
}

CASE(ppoll_closes_the_mask_for_remote_files)
{
	open_remotes();
	blocked_inside(0);
}

CASE(pselect_opens_the_mask_for_remote_files)
{
	open_remotes();
	blocked_outside(1);
}

CASE(pselect_closes_the_mask_for_remote_files)
{
	open_remotes();
	blocked_inside(1);
}

CASE(epoll_pwait_opens_the_mask_for_remote_files)
{
	open_remotes();
	blocked_outside(2);
}

CASE(epoll_pwait_closes_the_mask_for_remote_files)
{
	open_remotes();
	blocked_inside(2);
}

CASE(epoll_pwait2_opens_the_mask_for_remote_files)
{
	open_remotes();
	blocked_outside(3);
}

CASE(epoll_pwait2_closes_the_mask_for_remote_files)
{
	open_remotes();
	blocked_inside(3);
}

CASE(a_remote_file_that_is_ready_comes_before_a_signal)
{
	static const char *const ways[] = { "ppoll", "pselect", "epoll_pwait", "epoll_pwait2" };

	open_remotes();
	for (int way = 0; way < 4; way++) {
		PART("%s", ways[way]);
		ready_before_signal(way);
	}
	/* Beside a local one. */
	local = ends[0];
	for (int way = 0; way < 2; way++) {
		PART("%s, local", ways[way]);
		ready_before_signal(way);
	}
	local = -1;
}

CASE(what_fails_leaves_the_mask_alone)
{
	struct pollfd members[3] = { { pair[0], POLLIN, 0 }, { 0, POLLIN, 0 }, { -1, POLLIN, 0 } };
	struct epoll_event event = { EPOLLIN, { 0 } };
	sigset_t all, old;

	open_remotes();
	members[1].fd = tube;
	sigfillset(&all);
	FAILS(EFAULT, syscall(SYS_ppoll, at(16), 1, NULL, &all, 8));
	FAILS(EINVAL, syscall(SYS_ppoll, members, 1, NULL, &all, 4));
	FAILS(EFAULT, syscall(SYS_ppoll, members, 1, NULL, at(16), 8));
	FAILS(EBADF, epoll_pwait(99, &event, 1, 0, &all));
	FAILS(EINVAL, epoll_pwait(pair[0], &event, 1, 0, &all));
	FAILS(EINVAL, syscall(SYS_epoll_pwait, set, &event, 1, 0, &all, 4));
	CHECK(sigprocmask(SIG_BLOCK, NULL, &old) == 0 && !sigismember(&old, SIGTERM));
}

static void *wait_in_thread(void *milliseconds)
{
	sigset_t blocked;
	struct pollfd member = { pair[0], POLLIN, 0 };

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &blocked, NULL);
	return (void *)(long)(poll(&member, 1, (long)milliseconds) | errno << 8);
}

static volatile int noted;

static void *wait_for_signal(void *unused)
{
	struct pollfd member = { pair[0], POLLIN, 0 };

	(void)unused;
	noted = syscall(SYS_gettid);
	int ended = poll(&member, 1, -1) == -1 && errno == EINTR && handled_by == noted;

	noted = 0;
	return (void *)(long)ended;
}

/* They come 60 ms apart. A wait that began anew each time would end with the last of them. */
CASE(signals_of_others_do_not_prolong_a_wait)
{
	pthread_t thread;
	void *result;
	long before;
	pid_t child;

	open_remotes();
	before = milliseconds();
	errno = 0;
	CHECK(pthread_create(&thread, NULL, wait_in_thread, (void *)200L) == 0);
	child = signal_later(SIGUSR1, 1000);
	CHECK(pthread_join(thread, &result) == 0 && (long)result == 0 &&
	      milliseconds() - before < 20000);
	kill(child, SIGKILL);
	while (waitpid(child, NULL, 0) != child)
		;
}

CASE(signals_of_others_do_not_end_a_wait)
{
	pthread_t thread;
	void *result;
	pid_t child;

	open_remotes();
	errno = 0;
	CHECK(pthread_create(&thread, NULL, wait_in_thread, (void *)-1L) == 0);
	child = signal_later(SIGUSR1, 3);
	while (waitpid(child, NULL, 0) != child)
		;
	CHECK(write(pair[1], "x", 1) == 1 && pthread_join(thread, &result) == 0 &&
	      (long)result == 1);
	CHECK(read(pair[0], &(char){ 0 }, 1) == 1);
}

CASE(a_signal_of_the_thread_ends_its_wait)
{
	pthread_t thread;
	void *result;

	open_remotes();
	signal(SIGUSR2, note_thread);
	CHECK(pthread_create(&thread, NULL, wait_for_signal, NULL) == 0);
	/* Again and again: the first may come before the wait begins. */
	while (pthread_tryjoin_np(thread, &result) != 0) {
		usleep(30000);
		if (noted)
			pthread_kill(thread, SIGUSR2);
	}
	CHECK(result != NULL);
}

/* The signal of the child is ignored. */
CASE(the_end_of_a_child_does_not_end_a_wait)
{
	struct pollfd member = { pair[0], POLLIN, 0 };
	long before;
	pid_t child;

	open_remotes();
	signal(SIGCHLD, SIG_DFL);
	before = milliseconds();
	child = signal_later(0, 1);
	CHECK(poll(&member, 1, 150) == 0 && milliseconds() - before >= 149 && exits_with(child, 0));
}

CASE(the_end_of_a_connection_ends_a_wait)
{
	struct pollfd member = { pair[0], POLLIN, 0 };

	open_remotes();
	close(pair[1]);
	CHECK(poll(&member, 1, -1) == 1 && member.revents == (POLLIN | POLLHUP));
}

/* The result has no place. What the mask of the call would let in stays pending. */
CASE(a_wait_that_found_something_brings_its_mask_back)
{
	struct sigaction action = { .sa_handler = note };
	struct timespec time = { 1, 0 };
	sigset_t blocked, none, pending;
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(write(ends[1], "x", 1) == 1);
	sigaction(SIGUSR1, &action, NULL);
	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	raise(SIGUSR1);
	for (int selects = 0; selects < 2; selects++) {
		struct pollfd *member = (void *)page;
		fd_set *in = (void *)page;

		PART("%s", selects ? "pselect" : "ppoll");
		CHECK(mprotect(page, 4096, PROT_READ | PROT_WRITE) == 0);
		memset(page, 0, 4096);
		if (selects)
			FD_SET(ends[0], in);
		else
			*member = (struct pollfd){ ends[0], POLLIN, 0 };
		CHECK(mprotect(page, 4096, PROT_READ) == 0);
		if (selects)
			FAILS(EFAULT, pselect(64, in, NULL, NULL, &time, &none));
		else
			FAILS(EFAULT, ppoll(member, 1, &time, &none));
		CHECK(caught == 0 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
	}
	sigprocmask(SIG_UNBLOCK, &blocked, NULL);
	CHECK(caught == SIGUSR1);
}
