// SPDX-License-Identifier: MIT OR Apache-2.0
/* poll and select, over files of both realms at once. */
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
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "waiting.h"

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int ends[2], pair[2], event, null;

static pid_t later(int fd, const void *data, int length)
{
	pid_t child = fork();

	if (child == 0) {
		usleep(60000);
		_exit(write(fd, data, length) == length ? 0 : 1);
	}
	return child;
}

static int joined(pid_t child)
{
	int status;

	return waitpid(child, &status, 0) == child && status == 0;
}

static void polls(void)
{
	struct pollfd set[4] = { { ends[0], POLLIN, 0 }, { pair[0], POLLIN, 0 }, { event, POLLIN, 0 }, { -1, POLLIN, 7 } };
	uint64_t one = 1;
	char byte;
	long before;

	CHECK(poll(set, 4, 0) == 0 && set[0].revents == 0 && set[3].revents == 0);
	before = now();
	CHECK(poll(set, 4, 50) == 0 && now() - before >= 49);
	CHECK(poll(set, 1, 20) == 0 && poll(set + 1, 1, 20) == 0 && poll(NULL, 0, 10) == 0);
	/* Each of them ends the wait of all. */
	pid_t child = later(ends[1], "a", 1);

	CHECK(poll(set, 4, 60000) == 1 && set[0].revents == POLLIN && set[1].revents == 0 && joined(child));
	CHECK(read(ends[0], &byte, 1) == 1);
	child = later(pair[1], "b", 1);
	CHECK(poll(set, 4, -1) == 1 && set[1].revents == POLLIN && set[0].revents == 0 && joined(child));
	child = later(event, &one, 8);
	CHECK(joined(child) && poll(set, 4, -1) == 2 && set[1].revents == POLLIN && set[2].revents == POLLIN);
	CHECK(read(event, &one, 8) == 8 && read(pair[0], &byte, 1) == 1);
	child = later(event, &one, 8);
	CHECK(poll(set, 4, -1) == 1 && set[2].revents == POLLIN && joined(child) && read(event, &one, 8) == 8);
	/* Ready at once, writers, what is always ready, what is not there. */
	struct pollfd other[5] = { { ends[1], POLLOUT | POLLIN, 0 }, { pair[0], POLLOUT, 0 }, { null, POLLIN | POLLOUT, 0 }, { 77, POLLIN, 0 }, { event, POLLIN | POLLOUT, 0 } };

	CHECK(poll(other, 5, 1000) == 5 && other[0].revents == POLLOUT && other[1].revents == POLLOUT);
	CHECK(other[2].revents == (POLLIN | POLLOUT) && other[3].revents == POLLNVAL && other[4].revents == POLLOUT);
	CHECK(poll(other + 3, 1, 1000) == 1 && other[3].revents == POLLNVAL);
	/* The same one twice. */
	set[1] = set[0];
	CHECK(write(ends[1], "c", 1) == 1 && poll(set, 2, -1) == 2 && set[1].revents == POLLIN && read(ends[0], &byte, 1) == 1);
	FAILS(EFAULT, poll(at(16), 1, 0));
	FAILS(EINVAL, syscall(SYS_poll, set, 1u << 30, 0));
}

static void interrupted(void)
{
	struct pollfd set[2] = { { ends[0], POLLIN, 0 }, { pair[0], POLLIN, 0 } };
	struct sigaction action = { .sa_handler = note, .sa_flags = SA_RESTART };
	struct timespec time = { 0, 40000000 };
	sigset_t blocked, none, old;

	sigaction(SIGALRM, &action, NULL);
	/* Again and again: the first may come before the wait begins. */
	ualarm(30000, 30000);
	FAILS(EINTR, poll(set, 1, 60000));
	caught = 0;
	FAILS(EINTR, poll(set, 2, 60000));
	CHECK(caught == SIGALRM);
	ualarm(0, 0);
	/* ppoll opens the mask while it waits. */
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
	CHECK(caught == SIGALRM && sigprocmask(SIG_BLOCK, NULL, &old) == 0 && sigismember(&old, SIGALRM));
	FAILS(EINVAL, syscall(SYS_ppoll, set, 1, NULL, &none, 4));
	time.tv_nsec = 2000000000;
	FAILS(EINVAL, ppoll(set, 1, &time, NULL));
	sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

static void selects(void)
{
	fd_set in, out, except;
	struct timeval time = { 0, 30000 };
	char byte;

	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_ZERO(&except);
	FD_SET(ends[0], &in);
	FD_SET(pair[0], &in);
	CHECK(select(pair[1] + 1, &in, NULL, NULL, &time) == 0 && !FD_ISSET(ends[0], &in) && !FD_ISSET(pair[0], &in));
	CHECK(time.tv_sec == 0 && time.tv_usec == 0);
	FD_SET(ends[0], &in);
	FD_SET(ends[1], &out);
	FD_SET(pair[0], &in);
	FD_SET(pair[0], &out);
	FD_SET(event, &except);
	CHECK(select(100, &in, &out, &except, NULL) == 2 && FD_ISSET(ends[1], &out) && FD_ISSET(pair[0], &out));
	CHECK(!FD_ISSET(ends[0], &in) && !FD_ISSET(pair[0], &in) && !FD_ISSET(event, &except));
	FD_SET(ends[0], &in);
	FD_SET(pair[0], &in);
	pid_t child = later(ends[1], "x", 1);

	CHECK(select(100, &in, NULL, NULL, NULL) == 1 && FD_ISSET(ends[0], &in) && !FD_ISSET(pair[0], &in));
	CHECK(read(ends[0], &byte, 1) == 1 && joined(child));
	FD_SET(pair[0], &in);
	child = later(pair[1], "x", 1);
	CHECK(select(100, &in, NULL, NULL, NULL) == 1 && FD_ISSET(pair[0], &in) && !FD_ISSET(ends[0], &in));
	CHECK(read(pair[0], &byte, 1) == 1 && joined(child));
	FD_SET(50, &in);
	FD_SET(ends[0], &in);
	FAILS(EBADF, select(100, &in, NULL, NULL, NULL));
	FAILS(EINVAL, select(-1, &in, NULL, NULL, NULL));
	time.tv_usec = -1;
	FAILS(EINVAL, select(100, NULL, NULL, NULL, &time));
	struct timespec span = { 0, 20000000 };

	FD_ZERO(&in);
	FD_SET(ends[0], &in);
	CHECK(pselect(100, &in, NULL, NULL, &span, NULL) == 0);
}

static int tube, set;
static volatile int handled_by;

static void note_thread(int signal)
{
	(void)signal;
	handled_by = syscall(SYS_gettid);
}

/* Has this process get a signal later, by way of a child. */
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

/* Waits for what only Linux has: way 0 to 3 are ppoll, pselect, epoll_pwait and epoll_pwait2. Returns as they do. */
static int wait_remote(int way, int milliseconds, const sigset_t *mask)
{
	struct timespec time = { milliseconds / 1000, milliseconds % 1000 * 1000000 };
	struct pollfd members[2] = { { pair[0], POLLIN, 0 }, { tube, POLLIN, 0 } };
	struct epoll_event found[2];
	fd_set in;

	FD_ZERO(&in);
	FD_SET(pair[0], &in);
	FD_SET(tube, &in);
	switch (way) {
	case 0:
		return ppoll(members, 2, &time, mask);
	case 1:
		return pselect(64, &in, NULL, NULL, &time, mask);
	case 2:
		return epoll_pwait(set, found, 2, milliseconds, mask);
	default:
		return syscall(SYS_epoll_pwait2, set, found, 2, &time, mask, 8);
	}
}

/* The mask of a wait is the program's, wherever the files are. */
static void remote_masks(int way)
{
	sigset_t none, all, blocked, old;
	long before;

	sigemptyset(&none);
	sigfillset(&all);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGALRM);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	/* Blocked but in the wait. */
	caught = 0;
	ualarm(30000, 0);
	FAILS(EINTR, wait_remote(way, 60000, &none));
	CHECK(caught == SIGALRM && sigprocmask(SIG_BLOCK, NULL, &old) == 0 && sigismember(&old, SIGALRM));
	pid_t child = signal_later(SIGUSR1, 1);

	caught = 0;
	FAILS(EINTR, wait_remote(way, 60000, &none));
	CHECK(caught == SIGUSR1 && joined(child));
	/* It was there before. */
	caught = 0;
	kill(getpid(), SIGUSR1);
	CHECK(wait_remote(way, 20, NULL) == 0 && caught == 0);
	FAILS(EINTR, wait_remote(way, 60000, &none));
	CHECK(caught == SIGUSR1);
	sigprocmask(SIG_UNBLOCK, &blocked, NULL);
	/* Blocked in the wait alone. */
	caught = 0;
	ualarm(20000, 0);
	before = now();
	CHECK(wait_remote(way, 100, &all) == 0 && now() - before >= 99 && caught == SIGALRM);
	child = later(pair[1], "x", 1);
	CHECK(wait_remote(way, 60000, &all) == 1 && read(pair[0], &(char){ 0 }, 1) == 1 && joined(child));
	sigprocmask(SIG_BLOCK, NULL, &old);
	CHECK(!sigismember(&old, SIGALRM) && !sigismember(&old, SIGTERM));
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

/* Signals of others leave a wait alone. */
static void remote_threads(void)
{
	struct pollfd member = { pair[0], POLLIN, 0 };
	pthread_t thread;
	void *result;
	long before = now();

	errno = 0;
	/* 60 ms apart: one that began anew each time would take as long as they go on. */
	CHECK(pthread_create(&thread, NULL, wait_in_thread, (void *)200L) == 0);
	pid_t child = signal_later(SIGUSR1, 1000);

	CHECK(pthread_join(thread, &result) == 0 && (long)result == 0 && now() - before < 20000);
	kill(child, SIGKILL);
	while (waitpid(child, NULL, 0) != child)
		;
	CHECK(pthread_create(&thread, NULL, wait_in_thread, (void *)-1L) == 0);
	child = signal_later(SIGUSR1, 3);
	while (waitpid(child, NULL, 0) != child)
		;
	CHECK(write(pair[1], "x", 1) == 1 && pthread_join(thread, &result) == 0 && (long)result == 1);
	CHECK(read(pair[0], &(char){ 0 }, 1) == 1);
	/* One for a thread ends its wait, another is ended by what a thread writes. */
	signal(SIGUSR2, note_thread);
	CHECK(pthread_create(&thread, NULL, wait_for_signal, NULL) == 0);
	/* Again and again: the first may come before the wait begins. */
	while (pthread_tryjoin_np(thread, &result) != 0) {
		usleep(30000);
		if (noted)
			pthread_kill(thread, SIGUSR2);
	}
	CHECK(result != NULL);
	/* A child that ends, which nobody wants to know of, and the ends of a connection. */
	signal(SIGCHLD, SIG_DFL);
	before = now();
	child = signal_later(0, 1);
	CHECK(poll(&member, 1, 150) == 0 && now() - before >= 149 && joined(child));
	close(pair[1]);
	CHECK(poll(&member, 1, -1) == 1 && member.revents == (POLLIN | POLLHUP));
}

/* Of all descriptors none is local. */
static void remotes(void)
{
	char name[] = "/tmp/poll-XXXXXX";
	struct pollfd members[3] = { { pair[0], POLLIN, 0 }, { 0, POLLIN, 0 }, { -1, POLLIN, 0 } };
	struct epoll_event event = { EPOLLIN, { 0 } };
	struct timespec time = { 0, 30000000 };
	sigset_t all, old;
	char byte;
	long before;

	CHECK(mkdtemp(name) && chdir(name) == 0 && mkfifo("fifo", 0600) == 0);
	tube = members[1].fd = open("fifo", O_RDWR);
	set = epoll_create1(0);
	CHECK(tube > 0 && epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &event) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, tube, &event) == 0);
	signal(SIGUSR1, note);
	signal(SIGALRM, note);
	before = now();
	CHECK(poll(members, 3, 0) == 0 && poll(members, 3, 50) == 0 && now() - before >= 49);
	CHECK(ppoll(members, 3, &time, NULL) == 0);
	pid_t child = later(tube, "x", 1);

	CHECK(poll(members, 3, -1) == 1 && members[1].revents == POLLIN && joined(child) && read(tube, &byte, 1) == 1);
	child = later(pair[1], "x", 1);
	CHECK(poll(members, 3, 60000) == 1 && members[0].revents == POLLIN && joined(child) && read(pair[0], &byte, 1) == 1);
	ualarm(30000, 30000);
	FAILS(EINTR, poll(members, 3, 60000));
	FAILS(EINTR, poll(members, 3, -1));
	ualarm(0, 0);
	for (int way = 0; way < 4; way++)
		remote_masks(way);
	/* What fails leaves the mask alone. */
	sigfillset(&all);
	FAILS(EFAULT, syscall(SYS_ppoll, at(16), 1, NULL, &all, 8));
	FAILS(EINVAL, syscall(SYS_ppoll, members, 1, NULL, &all, 4));
	FAILS(EFAULT, syscall(SYS_ppoll, members, 1, NULL, at(16), 8));
	FAILS(EBADF, epoll_pwait(99, &event, 1, 0, &all));
	FAILS(EINVAL, epoll_pwait(pair[0], &event, 1, 0, &all));
	FAILS(EINVAL, syscall(SYS_epoll_pwait, set, &event, 1, 0, &all, 4));
	CHECK(sigprocmask(SIG_BLOCK, NULL, &old) == 0 && !sigismember(&old, SIGTERM));
	remote_threads();
	CHECK(unlink("fifo") == 0 && rmdir(name) == 0);
}

/* So many bytes one by one, and somewhat later one more. */
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

/* What ended a wait, or came just too late for that, does not end the next one. */
static void undisturbed(void)
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

int main(void)
{
	uint64_t value;

	CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	event = eventfd(0, 0);
	null = open("/dev/null", O_RDWR);
	polls();
	interrupted();
	selects();
	/* Many wake-ups between two processes. */
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
	undisturbed();
	close(ends[0]);
	close(ends[1]);
	close(event);
	close(null);
	remotes();
	return finish();
}
