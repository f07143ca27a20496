// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Descriptors of pipes and eventfds that are passed over a socket (unix(7), SCM_RIGHTS), to another
 * process or to the own one: what is in them, their flags and all their numbers stay, also in other
 * processes that have them, whatever these do with them just then.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "check.h"

static int pair[2];

BEFORE_EACH
{
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
}

/* A message with room for `count` descriptors. */
#define MESSAGE(count) \
	char byte = 0; \
	struct iovec part = { &byte, 1 }; \
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)] = ""; \
	struct msghdr message = { .msg_iov = &part, \
				  .msg_iovlen = 1, \
				  .msg_control = control, \
				  .msg_controllen = CMSG_SPACE(sizeof(int) * (count)) }

static int pass(int socket, const int *descriptors, int count)
{
	MESSAGE(count);

	*CMSG_FIRSTHDR(&message) = (struct cmsghdr){ CMSG_LEN(sizeof(int) * count), SOL_SOCKET,
						     SCM_RIGHTS };
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), descriptors, sizeof(int) * count);
	return sendmsg(socket, &message, 0) == 1;
}

static int take(int socket, int *descriptors, int count)
{
	MESSAGE(count);

	if (recvmsg(socket, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
		return 0;
	memcpy(descriptors, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int) * count);
	return 1;
}

static void gives(int descriptor, const char *expected)
{
	char text[100] = "";
	ssize_t length = read(descriptor, text, sizeof(text) - 1);

	CHECK(length == (ssize_t)strlen(expected) && strcmp(text, expected) == 0);
}

/* Runs `body` in a child that was there before the descriptors were. */
static pid_t child(void (*body)(void))
{
	pid_t pid = fork();

	if (!pid) {
		body();
		_exit(0);
	}
	close(pair[1]);
	return pid;
}

static void ended(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void writes(void)
{
	int got;

	close(pair[0]);
	CHECK(take(pair[1], &got, 1) && write(got, "child", 5) == 5);
}

CASE(a_child_writes_into_what_it_was_passed)
{
	pid_t pid = child(writes);
	int ends[2];

	CHECK(pipe(ends) == 0 && write(ends[1], "before ", 7) == 7);
	CHECK(pass(pair[0], &ends[1], 1) && close(ends[1]) == 0);
	ended(pid);
	gives(ends[0], "before child");
	CHECK(read(ends[0], &pid, 1) == 0);
}

static void reads(void)
{
	int got;

	close(pair[0]);
	CHECK(take(pair[1], &got, 1));
	gives(got, "before");
	gives(got, "after");
	CHECK(read(got, &got, 1) == 0);
}

CASE(a_child_reads_from_what_it_was_passed)
{
	pid_t pid = child(reads);
	int ends[2];

	CHECK(pipe(ends) == 0 && write(ends[1], "before", 6) == 6);
	CHECK(pass(pair[0], &ends[0], 1) && close(ends[0]) == 0);
	for (int left = 6; left;)
		CHECK(ioctl(ends[1], FIONREAD, &left) == 0);
	CHECK(write(ends[1], "after", 5) == 5 && close(ends[1]) == 0);
	ended(pid);
}

CASE(all_numbers_of_a_pipe_stay_its)
{
	int ends[2], copies[3], got[2];

	CHECK(pipe(ends) == 0);
	copies[0] = dup(ends[0]);
	copies[1] = fcntl(ends[1], F_DUPFD_CLOEXEC, 50);
	copies[2] = dup(ends[1]);
	CHECK(pass(pair[0], ends, 2) && take(pair[1], got, 2));
	CHECK(got[0] == copies[2] + 1 && got[1] == got[0] + 1);
	CHECK(write(copies[1], "1", 1) == 1 && write(ends[1], "2", 1) == 1);
	CHECK(write(got[1], "3", 1) == 1);
	gives(copies[0], "123");
	CHECK(fcntl(copies[1], F_GETFD) == FD_CLOEXEC && fcntl(ends[0], F_GETFD) == 0);
	CHECK(close(ends[1]) == 0 && close(copies[1]) == 0 && close(copies[2]) == 0);
	CHECK(write(got[1], "4", 1) == 1 && close(got[1]) == 0);
	gives(ends[0], "4");
	gives(got[0], "");
}

CASE(each_end_keeps_its_flags)
{
	int ends[2], got[2], byte;

	CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
	CHECK(pass(pair[0], ends, 2) && take(pair[1], got, 2));
	CHECK(fcntl(got[0], F_GETFL) == (O_RDONLY | O_NONBLOCK));
	CHECK(fcntl(got[1], F_GETFL) == O_WRONLY);
	FAILS(EAGAIN, read(ends[0], &byte, 1));
	CHECK(fcntl(got[0], F_SETFL, 0) == 0 && fcntl(ends[0], F_GETFL) == O_RDONLY);
}

CASE(packets_stay_packets)
{
	int ends[2], got;

	CHECK(pipe2(ends, O_DIRECT | O_NONBLOCK) == 0);
	CHECK(write(ends[1], "one", 3) == 3 && write(ends[1], "two", 3) == 3);
	CHECK(pass(pair[0], ends, 1) && take(pair[1], &got, 1));
	gives(got, "one");
	gives(ends[0], "two");
	CHECK(write(ends[1], "three", 5) == 5 && write(ends[1], "four", 4) == 4);
	gives(got, "three");
	gives(got, "four");
}

CASE(a_full_pipe_of_another_size_is_passed_with_all_that_it_has)
{
	static char block[3000];
	int ends[2], got, blocks = 0, seen = 0;

	CHECK(pipe2(ends, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 1 << 18) == 1 << 18);
	for (; write(ends[1], block, sizeof(block)) == sizeof(block); blocks++)
		memset(block, blocks + 1, sizeof(block));
	CHECK(pass(pair[0], ends, 1) && take(pair[1], &got, 1));
	CHECK(fcntl(got, F_GETPIPE_SZ) == 1 << 18);
	for (; read(got, block, sizeof(block)) == sizeof(block); seen++)
		CHECK(block[0] == (char)seen && block[sizeof(block) - 1] == (char)seen);
	CHECK(seen >= blocks && seen <= blocks + 1);
}

CASE(an_end_without_the_other_one_is_passed)
{
	int ends[2], got;

	signal(SIGPIPE, SIG_IGN);
	CHECK(pipe(ends) == 0 && write(ends[1], "left", 4) == 4 && close(ends[1]) == 0);
	CHECK(pass(pair[0], ends, 1) && take(pair[1], &got, 1));
	gives(got, "left");
	gives(got, "");
	CHECK(pipe(ends) == 0 && close(ends[0]) == 0);
	CHECK(pass(pair[0], &ends[1], 1) && take(pair[1], &got, 1));
	FAILS(EPIPE, write(got, "x", 1));
	FAILS(EPIPE, write(ends[1], "x", 1));
	signal(SIGPIPE, SIG_DFL);
}

CASE(what_was_passed_is_passed_again)
{
	int ends[2], got, again;

	CHECK(pipe(ends) == 0);
	CHECK(pass(pair[0], ends, 1) && take(pair[1], &got, 1));
	CHECK(pass(pair[0], &got, 1) && take(pair[1], &again, 1) && close(got) == 0);
	CHECK(pass(pair[0], &ends[1], 1) && take(pair[1], &got, 1));
	CHECK(write(got, "x", 1) == 1);
	gives(again, "x");
}

CASE(what_was_passed_is_polled_and_inherited)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct pollfd poll_for = { .events = POLLIN };
	int ends[2], got, set = epoll_create1(0);
	pid_t pid;

	CHECK(pipe(ends) == 0);
	CHECK(pass(pair[0], &ends[1], 1) && take(pair[1], &got, 1));
	poll_for.fd = ends[0];
	CHECK(poll(&poll_for, 1, 0) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &event) == 0);
	CHECK(epoll_wait(set, &event, 1, 0) == 0);
	pid = fork();
	if (!pid)
		_exit(write(got, "x", 1) != 1);
	CHECK(epoll_wait(set, &event, 1, -1) == 1 && poll(&poll_for, 1, 0) == 1);
	ended(pid);
	gives(ends[0], "x");
}

static int next_of(int set, int timeout)
{
	struct epoll_event event = { 0 };
	int count = epoll_wait(set, &event, 1, timeout);

	return count == 1 ? (int)event.data.u64 : -1;
}

/* As Erlang has it. */
CASE(the_other_end_may_be_in_an_epoll_set)
{
	struct epoll_event wanted = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = 77 };
	int ends[2], got, set = epoll_create1(0), other = dup(set);

	CHECK(pipe(ends) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &wanted) == 0);
	CHECK(pass(pair[0], &ends[1], 1) && take(pair[1], &got, 1) && close(ends[1]) == 0);
	CHECK(next_of(set, 0) == -1 && write(got, "x", 1) == 1 && next_of(other, -1) == 77);
	CHECK(next_of(set, 0) == -1);
	wanted.data.u64 = 78;
	CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &wanted) == 0 && next_of(set, 0) == 78);
	gives(ends[0], "x");
	CHECK(epoll_ctl(set, EPOLL_CTL_MOD, ends[0], &wanted) == 0 && close(got) == 0);
	CHECK(next_of(set, -1) == 78);
	CHECK(epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL) == 0);
	FAILS(ENOENT, epoll_ctl(set, EPOLL_CTL_DEL, ends[0], NULL));
}

CASE(what_is_ready_in_a_set_stays_so)
{
	struct epoll_event wanted = { .events = EPOLLIN, .data.u64 = 5 };
	int ends[2], sets[2], got, event = eventfd(2, EFD_NONBLOCK);
	uint64_t count;

	CHECK(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
	for (int i = 0; i < 2; i++) {
		sets[i] = epoll_create1(0);
		wanted.data.u64 = 5 + i;
		CHECK(epoll_ctl(sets[i], EPOLL_CTL_ADD, ends[0], &wanted) == 0);
	}
	CHECK(pass(pair[0], ends, 1) && take(pair[1], &got, 1));
	CHECK(next_of(sets[0], 0) == 5 && next_of(sets[1], 0) == 6);
	gives(ends[0], "x");
	CHECK(next_of(sets[0], 0) == -1);
	wanted.events |= EPOLLET;
	wanted.data.u64 = 9;
	CHECK(epoll_ctl(sets[0], EPOLL_CTL_ADD, event, &wanted) == 0);
	CHECK(pass(pair[0], &event, 1) && take(pair[1], &got, 1));
	CHECK(next_of(sets[0], -1) == 9 && next_of(sets[0], 0) == -1);
	CHECK(read(got, &count, 8) == 8 && count == 2);
	CHECK(close(event) == 0 && write(got, &count, 8) == 8);
}

static void *waits_in(void *set)
{
	return (void *)(long)next_of(*(int *)set, 20000);
}

CASE(a_thread_goes_on_waiting_in_a_set)
{
	struct epoll_event wanted = { .events = EPOLLIN, .data.u64 = 5 };
	int ends[2], got, set = epoll_create1(0);
	pthread_t thread;
	void *found;

	CHECK(pipe(ends) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, ends[0], &wanted) == 0);
	CHECK(pthread_create(&thread, NULL, waits_in, &set) == 0);
	usleep(50000);
	CHECK(pass(pair[0], &ends[1], 1) && take(pair[1], &got, 1));
	CHECK(write(got, "x", 1) == 1 && pthread_join(thread, &found) == 0 && (long)found == 5);
}

static void counts(void)
{
	uint64_t count = 5;
	int got;

	close(pair[0]);
	CHECK(take(pair[1], &got, 1) && write(got, &count, 8) == 8);
}

CASE(a_child_counts_in_an_eventfd)
{
	pid_t pid = child(counts);
	int event = eventfd(3, EFD_CLOEXEC), copy = dup(event);
	uint64_t count;

	CHECK(pass(pair[0], &event, 1));
	ended(pid);
	CHECK(read(copy, &count, 8) == 8 && count == 8);
	CHECK(fcntl(event, F_GETFD) == FD_CLOEXEC && fcntl(copy, F_GETFD) == 0);
	count = 1;
	CHECK(write(event, &count, 8) == 8 && read(copy, &count, 8) == 8 && count == 1);
}

CASE(a_semaphore_stays_one)
{
	uint64_t count = ~0ULL - 1;
	int event = eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK), got;

	CHECK(write(event, &count, 8) == 8);
	CHECK(pass(pair[0], &event, 1) && take(pair[1], &got, 1));
	CHECK(read(got, &count, 8) == 8 && count == 1 && read(event, &count, 8) == 8 && count == 1);
	CHECK(fcntl(got, F_GETFL) == (O_RDWR | O_NONBLOCK));
	count = 2;
	CHECK(write(event, &count, 8) == 8);
	count = 1;
	FAILS(EAGAIN, write(event, &count, 8));
}

static int turns[2];

static void *goes_on(void *unused)
{
	char byte;

	while (read(turns[0], &byte, 1) == 1 && byte != 'e')
		;
	return unused;
}

/* Another thread may use a pipe as it is passed: no byte is lost then. */
CASE(a_thread_goes_on_reading)
{
	pthread_t thread;
	int got;

	CHECK(pipe(turns) == 0);
	CHECK(pass(pair[0], &turns[1], 1) && take(pair[1], &got, 1));
	CHECK(pthread_create(&thread, NULL, goes_on, NULL) == 0);
	for (int i = 0; i < 100; i++)
		CHECK(write(i & 1 ? got : turns[1], "x", 1) == 1);
	CHECK(write(got, "e", 1) == 1 && pthread_join(thread, NULL) == 0);
}

/* A pipe that a child has as well. */
static int shared[2];

/* Starts a child that has the shared pipe, and gives it time to begin with what it does. */
static pid_t child_that(void (*acts)(void))
{
	pid_t pid;

	CHECK(pipe(shared) == 0);
	pid = fork();
	if (!pid) {
		close(pair[0]);
		close(pair[1]);
		acts();
		_exit(0);
	}
	usleep(100000);
	return pid;
}

static int passed(int descriptor)
{
	int got;

	CHECK(pass(pair[0], &descriptor, 1) && take(pair[1], &got, 1));
	return got;
}

static void reads_all(void)
{
	close(shared[1]);
	gives(shared[0], "one");
	gives(shared[0], "two");
	gives(shared[0], "");
}

CASE(a_child_goes_on_reading_what_is_passed)
{
	pid_t pid = child_that(reads_all);
	int got = passed(shared[1]);

	CHECK(close(shared[0]) == 0 && write(got, "one", 3) == 3);
	usleep(20000);
	CHECK(write(shared[1], "two", 3) == 3);
	CHECK(close(got) == 0 && close(shared[1]) == 0);
	ended(pid);
}

static void fills(void)
{
	static char block[1 << 17];

	close(shared[0]);
	CHECK(write(shared[1], block, sizeof(block)) == sizeof(block));
}

CASE(a_child_goes_on_writing_what_is_passed)
{
	static char block[1 << 17];
	pid_t pid = child_that(fills);
	int got = passed(shared[0]);
	size_t seen = 0;

	CHECK(close(shared[1]) == 0);
	for (ssize_t length; (length = read(got, block, sizeof(block))) != 0; seen += length)
		CHECK(length > 0);
	CHECK(seen == sizeof(block));
	ended(pid);
}

static void polls(void)
{
	struct pollfd wanted = { shared[0], POLLIN, 0 };

	CHECK(poll(&wanted, 1, 20000) == 1 && wanted.revents == POLLIN);
	gives(shared[0], "x");
}

static void polls_with_a_socket(void)
{
	int other[2];
	struct pollfd wanted[] = { { shared[0], POLLIN, 0 }, { -1, POLLIN, 0 } };

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0);
	wanted[1].fd = other[0];
	CHECK(poll(wanted, 2, 20000) == 1 && wanted[0].revents == POLLIN);
	gives(shared[0], "x");
}

static void polls_with_a_timespec(void)
{
	struct pollfd wanted = { shared[0], POLLIN, 0 };

	CHECK(ppoll(&wanted, 1, &(struct timespec){ 20, 0 }, NULL) == 1);
	gives(shared[0], "x");
}

static void selects(void)
{
	struct timeval limit = { 20, 0 };
	fd_set set;

	FD_ZERO(&set);
	FD_SET(shared[0], &set);
	CHECK(select(shared[0] + 1, &set, NULL, NULL, &limit) == 1 && FD_ISSET(shared[0], &set));
	gives(shared[0], "x");
}

static void waits_in_a_set(void)
{
	struct epoll_event wanted = { .events = EPOLLIN, .data.u64 = 5 };
	int set = epoll_create1(0);

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, shared[0], &wanted) == 0 && next_of(set, 20000) == 5);
	gives(shared[0], "x");
	CHECK(next_of(set, 0) == -1);
	CHECK(epoll_ctl(set, EPOLL_CTL_DEL, shared[0], NULL) == 0);
}

/* The set knows the file, whatever becomes of the number. */
static void waits_in_a_set_without_the_number(void)
{
	struct epoll_event wanted = { .events = EPOLLIN, .data.u64 = 5 };
	int set = epoll_create1(0), copy = dup(shared[0]);

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, shared[0], &wanted) == 0);
	CHECK(close(shared[0]) == 0 && next_of(set, 20000) == 5);
	gives(copy, "x");
	CHECK(next_of(set, 0) == -1);
}

static void polls_a_set(void)
{
	struct epoll_event wanted = { .events = EPOLLIN, .data.u64 = 5 };
	struct pollfd poll_for = { epoll_create1(0), POLLIN, 0 };

	CHECK(epoll_ctl(poll_for.fd, EPOLL_CTL_ADD, shared[0], &wanted) == 0);
	CHECK(poll(&poll_for, 1, 20000) == 1 && next_of(poll_for.fd, 0) == 5);
	gives(shared[0], "x");
}

CASE(a_child_goes_on_waiting_for_what_is_passed)
{
	static const struct {
		const char *name;
		void (*waits)(void);
	} ways[] = {
		{ "poll", polls },
		{ "poll of both kinds", polls_with_a_socket },
		{ "ppoll", polls_with_a_timespec },
		{ "select", selects },
		{ "epoll", waits_in_a_set },
		{ "epoll without the number", waits_in_a_set_without_the_number },
		{ "poll of a set", polls_a_set },
	};

	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		pid_t pid;
		int got;

		PART("%s", ways[i].name);
		pid = child_that(ways[i].waits);
		got = passed(shared[1]);
		usleep(50000);
		CHECK(write(got, "x", 1) == 1 && close(got) == 0);
		ended(pid);
		CHECK(close(shared[0]) == 0 && close(shared[1]) == 0);
	}
}

static void waits_in_vain(void)
{
	struct pollfd wanted = { shared[0], POLLIN, 0 };

	CHECK(poll(&wanted, 1, 300) == 0);
	CHECK(ppoll(&wanted, 1, &(struct timespec){ 0, 1000000 }, NULL) == 0);
}

CASE(a_wait_ends_in_time_though_its_file_is_passed)
{
	pid_t pid = child_that(waits_in_vain);

	passed(shared[1]);
	ended(pid);
}

static void has_it(void)
{
	pause();
}

static void closes_later(void)
{
	close(shared[0]);
	usleep(300000);
	close(shared[1]);
	pause();
}

/* It ends when all have closed it, also those who have not used it since it was passed. */
CASE(the_end_of_what_is_passed_comes_when_nobody_has_it)
{
	pid_t pid = child_that(has_it);
	int got = passed(shared[0]), byte;

	CHECK(close(shared[1]) == 0 && fcntl(got, F_SETFL, O_NONBLOCK) == 0);
	FAILS(EAGAIN, read(got, &byte, 1));
	CHECK(fcntl(got, F_SETFL, 0) == 0 && kill(pid, SIGKILL) == 0);
	CHECK(read(got, &byte, 1) == 0);
	CHECK(waitpid(pid, NULL, 0) == pid);
	close(shared[0]);
	close(got);
	pid = child_that(closes_later);
	got = passed(shared[0]);
	CHECK(close(shared[1]) == 0 && read(got, &byte, 1) == 0);
	CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}

static void has_a_child(void)
{
	char byte;
	pid_t pid;

	usleep(300000);
	pid = fork();
	if (!pid) {
		close(shared[1]);
		gives(shared[0], "x");
		CHECK(read(shared[0], &byte, 1) == 0);
		_exit(0);
	}
	close(shared[0]);
	close(shared[1]);
	ended(pid);
}

CASE(a_child_of_one_that_has_what_was_passed_has_it)
{
	pid_t pid = child_that(has_a_child);
	int got = passed(shared[1]);

	usleep(400000);
	CHECK(close(shared[1]) == 0 && write(got, "x", 1) == 1 && close(got) == 0);
	ended(pid);
}

ROLE(reader)
{
	char byte;

	return count != 2 || read(atoi(arguments[1]), &byte, 1) != 1 || byte != 'x' ||
	       read(atoi(arguments[1]), &byte, 1) != 0;
}

static void executes(void)
{
	char number[12];

	usleep(300000);
	close(shared[1]);
	snprintf(number, sizeof(number), "%d", shared[0]);
	execl("/proc/self/exe", "reader", number, NULL);
	_exit(1);
}

CASE(a_program_that_is_executed_has_what_was_passed)
{
	pid_t pid = child_that(executes);
	int got = passed(shared[1]);

	CHECK(close(shared[1]) == 0 && write(got, "x", 1) == 1 && close(got) == 0);
	ended(pid);
}

static void has_flags(void)
{
	int copy;

	usleep(300000);
	CHECK(fcntl(shared[0], F_GETFL) == (O_RDONLY | O_NONBLOCK));
	CHECK(fcntl(shared[1], F_GETFL) == O_WRONLY);
	copy = dup(shared[0]);
	CHECK(copy == pair[0] && fcntl(copy, F_GETPIPE_SZ) == 1 << 18);
	gives(copy, "one");
	CHECK(fcntl(shared[1], F_SETFD, FD_CLOEXEC) == 0);
}

/* Opens it by its name before it is used in any other way. */
static void opens_it(void)
{
	char name[30];
	int again;

	usleep(300000);
	snprintf(name, sizeof(name), "/dev/fd/%d", shared[1]);
	again = open(name, O_WRONLY);
	CHECK(again >= 0 && close(shared[1]) == 0 && write(again, "x", 1) == 1);
}

CASE(what_was_passed_is_opened_by_its_name)
{
	pid_t pid = child_that(opens_it);
	int got = passed(shared[0]), byte;

	CHECK(close(shared[1]) == 0);
	gives(got, "x");
	CHECK(read(got, &byte, 1) == 0);
	ended(pid);
}

CASE(what_a_child_has_of_it_keeps_its_flags)
{
	pid_t pid;
	int got;

	CHECK(pipe(shared) == 0);
	pid = fork();
	if (!pid) {
		close(pair[0]);
		close(pair[1]);
		has_flags();
		_exit(0);
	}
	CHECK(fcntl(shared[0], F_SETFL, O_NONBLOCK) == 0);
	CHECK(fcntl(shared[0], F_SETPIPE_SZ, 1 << 18) == 1 << 18);
	CHECK(write(shared[1], "one", 3) == 3);
	got = passed(shared[1]);
	CHECK(fcntl(got, F_GETFL) == O_WRONLY);
	ended(pid);
}

/* A set that two processes have: one of them goes on with it, then the other one. */
CASE(a_set_of_two_processes_has_what_was_passed)
{
	struct epoll_event wanted = { .events = EPOLLIN, .data.u64 = 5 };
	int set = epoll_create1(0), got;
	pid_t pid;

	CHECK(pipe(shared) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, shared[0], &wanted) == 0);
	pid = fork();
	if (!pid) {
		CHECK(next_of(set, 20000) == 5);
		gives(shared[0], "x");
		_exit(0);
	}
	usleep(100000);
	got = passed(shared[1]);
	CHECK(next_of(set, 0) == -1 && write(got, "x", 1) == 1);
	ended(pid);
	CHECK(next_of(set, 0) == -1 && write(got, "y", 1) == 1 && next_of(set, 20000) == 5);
	gives(shared[0], "y");
	CHECK(epoll_ctl(set, EPOLL_CTL_DEL, shared[0], NULL) == 0);
}

static int event_of_both;

static void counts_with_another(void)
{
	uint64_t count;

	CHECK(read(event_of_both, &count, 8) == 8 && count == 3);
	count = 7;
	CHECK(write(event_of_both, &count, 8) == 8);
}

CASE(a_child_goes_on_with_an_eventfd_that_is_passed)
{
	uint64_t count = 3;
	pid_t pid;
	int got;

	event_of_both = eventfd(0, 0);
	pid = child_that(counts_with_another);
	got = passed(event_of_both);
	CHECK(write(got, &count, 8) == 8);
	ended(pid);
	CHECK(read(event_of_both, &count, 8) == 8 && count == 7);
}

/* Both pass it at once. */
CASE(two_processes_pass_the_same_pipe)
{
	for (int round = 0; round < 20; round++) {
		int other[2], got[2];
		pid_t pid;

		PART("round %d", round);
		CHECK(pipe(shared) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0);
		CHECK(write(shared[1], "0", 1) == 1);
		pid = fork();
		if (!pid)
			_exit(!pass(other[0], &shared[round & 1], 1));
		CHECK(pass(pair[0], &shared[1], 1) && take(pair[1], &got[0], 1));
		CHECK(take(other[1], &got[1], 1));
		ended(pid);
		CHECK(write(got[0], "1", 1) == 1);
		if (round & 1) {
			CHECK(write(got[1], "2", 1) == 1);
			gives(shared[0], "012");
		} else {
			gives(got[1], "01");
		}
		for (int i = 0; i < 2; i++)
			CHECK(close(got[i]) == 0 && close(other[i]) == 0 && close(shared[i]) == 0);
	}
}

static void *reads_one(void *unused)
{
	char byte = 0;

	(void)unused;
	return (void *)(long)(read(turns[0], &byte, 1) == 1 ? byte : -1);
}

CASE(a_thread_that_waits_in_it_goes_on)
{
	pthread_t thread;
	void *found;
	int got;

	CHECK(pipe(turns) == 0 && pthread_create(&thread, NULL, reads_one, NULL) == 0);
	usleep(50000);
	got = passed(turns[1]);
	CHECK(write(got, "x", 1) == 1 && pthread_join(thread, &found) == 0 && (long)found == 'x');
}

/* Counts of an eventfd are taken by someone who is more urgent, and wants them all the time. */
static void takes_urgently(void)
{
	const struct timespec pause = { 0, 50000 };
	struct sched_param urgent = { .sched_priority = 10 };
	uint64_t count;

	CHECK(sched_setscheduler(0, SCHED_FIFO, &urgent) == 0);
	for (;;) {
		CHECK(read(event_of_both, &count, 8) == 8 && count == 1);
		nanosleep(&pause, NULL);
	}
}

CASE(who_passes_comes_to_an_end_beside_a_more_urgent_reader)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
	for (int round = 0; round < 30; round++) {
		pid_t pid;
		int got;

		PART("round %d", round);
		event_of_both = eventfd(1 << 30, EFD_SEMAPHORE);
		pid = fork();
		if (!pid)
			takes_urgently();
		usleep(2000);
		got = passed(event_of_both);
		CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
		CHECK(close(got) == 0 && close(event_of_both) == 0);
	}
}

/* Whatever has been done by then, others have the pipe as it was. */
CASE(who_passes_is_killed)
{
	for (int round = 0; round < 60; round++) {
		pid_t reader, passer;

		PART("round %d", round);
		CHECK(pipe(shared) == 0);
		reader = fork();
		if (!reader) {
			reads_all();
			_exit(0);
		}
		passer = fork();
		if (!passer) {
			int own[2];

			CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, own) == 0);
			pass(own[0], shared, 2);
			pause();
		}
		usleep(200 * round);
		CHECK(kill(passer, SIGKILL) == 0 && waitpid(passer, NULL, 0) == passer);
		CHECK(close(shared[0]) == 0 && write(shared[1], "one", 3) == 3);
		usleep(20000);
		CHECK(write(shared[1], "two", 3) == 3 && close(shared[1]) == 0);
		ended(reader);
	}
}
