// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * heap-hostile WHAT CHILDREN
 *
 * So many children, if there can be that many, each have the kernel keep as many things of a kind
 * as it does, give a part of them back and have others. Tells how many each has, and the number of
 * the error that ended it. They stay until the input ends.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
/* More than there can be mappings, descriptors and timers. */
#define MOST 70000UL
#define MOST_CHILDREN 400

#define ASSERT(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "line %d: %s: %m\n", __LINE__, #condition); \
			_exit(1); \
		} \
	} while (0)

/* What children tell, and their end, in memory of all of them: telling needs nothing. */
static struct {
	volatile int ends;
	struct {
		volatile int done;
		unsigned long count;
		int error;
	} children[MOST_CHILDREN];
} *shared;

static unsigned char *area;
static int fds[MOST];
static timer_t timers[MOST];

static void wait_a_while(void)
{
	struct timespec time = { .tv_nsec = 2000000 };

	nanosleep(&time, NULL);
}

/* Memory without pages for so many mappings, each of one page. */
static void make_area(int flags, int protection)
{
	area = mmap(NULL, 2 * MOST * PAGE, protection, flags | MAP_NORESERVE, -1, 0);
	if (area == MAP_FAILED)
		_exit(0);
}

/* Each has the thing of that number, and gives it back; it says whether it does. */
static int hole(unsigned long number)
{
	if (number == 0)
		make_area(MAP_PRIVATE | MAP_ANONYMOUS, PROT_NONE);
	return munmap(area + (2 * number + 1) * PAGE, PAGE) == 0;
}

static int fill_hole(unsigned long number)
{
	unsigned char *at = area + (2 * number + 1) * PAGE;

	return mmap(at, PAGE, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == at;
}

static int right(unsigned long number)
{
	if (number == 0)
		make_area(MAP_PRIVATE | MAP_ANONYMOUS, PROT_NONE);
	return mprotect(area + (2 * number + 1) * PAGE, PAGE, PROT_READ) == 0;
}

static int no_right(unsigned long number)
{
	return mprotect(area + (2 * number + 1) * PAGE, PAGE, PROT_NONE) == 0;
}

static int mark(unsigned long number)
{
	if (number == 0)
		make_area(MAP_PRIVATE | MAP_ANONYMOUS, PROT_NONE);
	return madvise(area + (2 * number + 1) * PAGE, PAGE, MADV_DONTFORK) == 0;
}

static int no_mark(unsigned long number)
{
	return madvise(area + (2 * number + 1) * PAGE, PAGE, MADV_DOFORK) == 0;
}

/* A mapping of its own that moves, and so is elsewhere. */
static int moved(unsigned long number)
{
	unsigned char *at;

	if (number == 0)
		make_area(MAP_PRIVATE | MAP_ANONYMOUS, PROT_NONE);
	at = area + 2 * number * PAGE;
	return mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE) != MAP_FAILED;
}

static int not_moved(unsigned long number)
{
	return munmap(area + 2 * number * PAGE, PAGE) == 0;
}

/* Memory that could be shared, each of its own. */
static int object(unsigned long number)
{
	int protection = number % 2 ? PROT_READ : PROT_NONE;

	if (number == 0)
		make_area(MAP_PRIVATE | MAP_ANONYMOUS, PROT_NONE);
	return mmap(area + number * PAGE, PAGE, protection, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED,
		    -1, 0) != MAP_FAILED;
}

static int no_object(unsigned long number)
{
	return munmap(area + number * PAGE, PAGE) == 0;
}

static int descriptor(unsigned long number)
{
	return (fds[number] = eventfd(0, EFD_NONBLOCK)) >= 0;
}

static int no_descriptor(unsigned long number)
{
	return close(fds[number]) == 0;
}

static int copy(unsigned long number)
{
	return (fds[number] = number ? dup(fds[0]) : epoll_create1(0)) >= 0;
}

static int pipe_full(unsigned long number)
{
	static char bytes[PAGE];
	int ends[2], written;

	if (number % 2)
		return (fds[number] = dup(fds[number - 1])) >= 0;
	if (pipe2(ends, O_NONBLOCK))
		return 0;
	fds[number] = ends[0];
	while ((written = write(ends[1], bytes, PAGE)) > 0)
		;
	return written < 0 && errno == EAGAIN;
}

/* Sets of seven files each. */
static int set(unsigned long number)
{
	struct epoll_event event = { .events = EPOLLIN };
	unsigned long first = number / 8 * 8;

	fds[number] = number == first ? epoll_create1(0) : eventfd(0, EFD_NONBLOCK);
	return fds[number] >= 0 &&
	       (number == first ||
		epoll_ctl(fds[first], EPOLL_CTL_ADD, fds[number], &event) == 0);
}

static int clock_descriptor(unsigned long number)
{
	struct itimerspec time = { .it_value = { .tv_sec = 10000 } };

	fds[number] = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	return fds[number] >= 0 && timerfd_settime(fds[number], 0, &time, NULL) == 0;
}

static int timer(unsigned long number)
{
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };

	return timer_create(number % 2 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &event,
			    &timers[number]) == 0;
}

static int no_timer(unsigned long number)
{
	return timer_delete(timers[number]) == 0;
}

static int queued(unsigned long number)
{
	union sigval value = { .sival_int = number };
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	return sigqueue(getpid(), SIGRTMIN + 1, value) == 0;
}

static int not_queued(unsigned long number)
{
	struct timespec time = { 0 };
	sigset_t set;

	(void)number;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 1);
	return sigtimedwait(&set, NULL, &time) > 0;
}

static int record(unsigned long number)
{
	struct flock lock = { .l_type = F_WRLCK, .l_start = 2 * number, .l_len = 1 };

	if (number == 0)
		ASSERT((fds[0] = open("/proc/self/maps", O_RDWR)) >= 0 ||
		       (fds[0] = open("/proc/self/maps", O_RDONLY)) >= 0);
	if (fcntl(fds[0], F_SETLK, &lock) == 0)
		return 1;
	lock.l_type = F_RDLCK;
	return fcntl(fds[0], F_SETLK, &lock) == 0;
}

static int no_record(unsigned long number)
{
	struct flock lock = { .l_type = F_UNLCK, .l_start = 2 * number, .l_len = 1 };

	return fcntl(fds[0], F_SETLK, &lock) == 0;
}

static aio_context_t contexts[MOST];

static int context(unsigned long number)
{
	return syscall(SYS_io_setup, 1, &contexts[number]) == 0;
}

static int no_context(unsigned long number)
{
	return syscall(SYS_io_destroy, contexts[number]) == 0;
}

/* Connections with the longest buffers, to a station that is not there. */
static int stream(unsigned long number)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(80) };
	int most = 1 << 20;

	ASSERT(inet_aton("10.9.0.77", &to.sin_addr));
	fds[number] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (fds[number] < 0)
		return 0;
	ASSERT(setsockopt(fds[number], SOL_SOCKET, SO_SNDBUF, &most, sizeof(most)) == 0);
	ASSERT(setsockopt(fds[number], SOL_SOCKET, SO_RCVBUF, &most, sizeof(most)) == 0);
	if (connect(fds[number], (struct sockaddr *)&to, sizeof(to)) && errno != EINPROGRESS) {
		int error = errno;

		close(fds[number]);
		errno = error;
		return 0;
	}
	return 1;
}

/* Threads that each wait at as many things as they can. */
static void *waits(void *unused)
{
	enum { COUNT = 1000 };
	struct pollfd *all = (struct pollfd *)area;

	(void)unused;
	while (!shared->ends)
		if (poll(all, COUNT, 100) < 0)
			wait_a_while();
	return NULL;
}

static int thread(unsigned long number)
{
	pthread_attr_t attributes;
	pthread_t made;

	if (number == 0) {
		make_area(MAP_PRIVATE | MAP_ANONYMOUS, PROT_READ | PROT_WRITE);
		fds[0] = eventfd(0, EFD_NONBLOCK);
		for (int at = 0; at < 1000; at++)
			((struct pollfd *)area)[at] =
				(struct pollfd){ .fd = fds[0], .events = POLLIN };
	}
	ASSERT(pthread_attr_init(&attributes) == 0);
	ASSERT(pthread_attr_setstacksize(&attributes, 16384) == 0);
	errno = pthread_create(&made, &attributes, waits, NULL);
	return errno == 0;
}

static int nothing(unsigned long number)
{
	(void)number;
	return 0;
}

static const struct {
	const char *name;
	int (*have)(unsigned long), (*give_back)(unsigned long);
} kinds[] = {
	{ "holes", hole, fill_hole },
	{ "rights", right, no_right },
	{ "marks", mark, no_mark },
	{ "moves", moved, not_moved },
	{ "objects", object, no_object },
	{ "descriptors", descriptor, no_descriptor },
	{ "copies", copy, no_descriptor },
	{ "pipes", pipe_full, no_descriptor },
	{ "sets", set, no_descriptor },
	{ "clocks", clock_descriptor, no_descriptor },
	{ "timers", timer, no_timer },
	{ "signals", queued, not_queued },
	{ "records", record, no_record },
	{ "contexts", context, no_context },
	{ "streams", stream, no_descriptor },
	{ "threads", thread, nothing },
	{ "processes", nothing, nothing },
};

/* Has things until it is refused one, gives some of them back, and has others. */
static void act(int kind, int child)
{
	enum { ROUNDS = 3, PART = 8 };
	unsigned long count = 0, least;

	for (int round = 0; round < ROUNDS; round++) {
		errno = 0;
		while (count < MOST && kinds[kind].have(count))
			count++;
		shared->children[child].error = errno;
		shared->children[child].count = count;
		if (round == ROUNDS - 1 || !kinds[kind].give_back || kinds[kind].have == nothing)
			break;
		for (least = count - count / PART; count > least; count--)
			if (!kinds[kind].give_back(count - 1))
				break;
	}
	shared->children[child].done = 1;
	while (!shared->ends)
		wait_a_while();
}

int main(int count, char **arguments)
{
	int children = count == 3 ? atoi(arguments[2]) : 0, child, kind = 0;
	const int kind_count = sizeof(kinds) / sizeof(*kinds);
	struct rlimit limit;

	while (kind < kind_count && (count < 2 || strcmp(kinds[kind].name, arguments[1])))
		kind++;
	ASSERT(kind < kind_count && children > 0 && children <= MOST_CHILDREN);
	ASSERT(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT(shared != MAP_FAILED);
	memset(shared, 0, sizeof(*shared));
	/* What Linux needs to tell of the end is there as well. */
	printf("%s:", arguments[1]);
	fflush(stdout);
	for (child = 0; child < children; child++) {
		pid_t made = fork();

		if (made == 0) {
			act(kind, child);
			_exit(0);
		}
		if (made < 0) {
			printf(" no more (%d)", errno);
			break;
		}
		while (!shared->children[child].done && waitpid(made, NULL, WNOHANG) == 0)
			wait_a_while();
		if (child < 4 || kind < kind_count - 1)
			printf(" %lu (%d)", shared->children[child].count,
			       shared->children[child].error);
	}
	printf("; %d.\n", child);
	fflush(stdout);
	while (getchar() != EOF)
		;
	shared->ends = 1;
	while (wait(NULL) > 0)
		;
	return 0;
}
