// SPDX-License-Identifier: MIT OR Apache-2.0
/* kcmp: whether two processes, or threads, have the same of something. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/kcmp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include "check.h"

static long compare(pid_t first, pid_t second, int kind, unsigned long one, unsigned long other)
{
	return syscall(SYS_kcmp, first, second, kind, one, other);
}

/* How two descriptors of this process stand to each other. */
static long files(int one, int other)
{
	return compare(getpid(), getpid(), KCMP_FILE, one, other);
}

static int differ(int one, int other)
{
	long order = files(one, other);

	return (order == 1 || order == 2) && files(other, one) == 3 - order;
}

CASE(descriptors_of_one_file)
{
	int event = eventfd(0, 0), file = open("/proc/self/exe", O_RDONLY), ends[2];

	CHECK(event >= 0 && file >= 0 && pipe(ends) == 0);
	CHECK(files(event, event) == 0 && files(event, dup(event)) == 0);
	CHECK(files(file, file) == 0 && files(file, dup(file)) == 0);
	CHECK(differ(event, file) && differ(event, ends[0]) && differ(ends[0], ends[1]));
	CHECK(differ(file, ends[1]) && differ(file, open("/proc/self/exe", O_RDONLY)));
	FAILS(EBADF, files(event, 900));
	FAILS(EBADF, files(900, event));
	FAILS(EBADF, files(file, 900));
	FAILS(EBADF, files(-1, file));
}

CASE(a_child_has_its_own)
{
	int event = eventfd(0, 0), file = open("/proc/self/exe", O_RDONLY);
	pid_t child = fork(), own = getpid();
	static const int kinds[] = { KCMP_VM, KCMP_FILES, KCMP_FS, KCMP_SIGHAND };

	if (child == 0)
		for (;;)
			pause();
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		long order = compare(own, child, kinds[i], 0, 0);

		PART("kind %d", kinds[i]);
		CHECK(order == 1 || order == 2);
		CHECK(compare(child, own, kinds[i], 0, 0) == 3 - order);
		CHECK(compare(child, child, kinds[i], 0, 0) == 0);
	}
	/* Neither has any. */
	CHECK(compare(own, child, KCMP_SYSVSEM, 0, 0) == 0);
	CHECK(compare(own, child, KCMP_FILE, event, event) == 0);
	CHECK(compare(own, child, KCMP_FILE, file, file) == 0);
	CHECK(compare(own, child, KCMP_FILE, file, event) > 0);
	CHECK(close(event) == 0);
	FAILS(EBADF, compare(own, child, KCMP_FILE, event, event));
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	FAILS(ESRCH, compare(own, child, KCMP_VM, 0, 0));
}

static void *idle(void *argument)
{
	*(volatile pid_t *)argument = gettid();
	for (;;)
		pause();
	return NULL;
}

CASE(threads_share_what_they_share)
{
	volatile pid_t tid = 0;
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, idle, (void *)&tid) == 0);
	while (tid == 0)
		usleep(1000);
	CHECK(compare(getpid(), tid, KCMP_VM, 0, 0) == 0);
	CHECK(compare(getpid(), tid, KCMP_FILES, 0, 0) == 0);
	CHECK(compare(getpid(), tid, KCMP_FS, 0, 0) == 0);
	CHECK(compare(getpid(), tid, KCMP_SIGHAND, 0, 0) == 0);
	CHECK(compare(getpid(), tid, KCMP_SYSVSEM, 0, 0) == 0);
}

CASE(members_of_an_epoll_set)
{
	int set = epoll_create1(0), event = eventfd(0, 0), other = eventfd(0, 0);
	int file = open("/proc/self/exe", O_RDONLY), inner = epoll_create1(0);
	struct kcmp_epoll_slot slot = { set, event, 0 }, none = { set, other, 0 };
	struct kcmp_epoll_slot second = { set, event, 1 }, no_set = { event, event, 0 };
	struct kcmp_epoll_slot closed = { 900, event, 0 }, nested = { set, inner, 0 };
	struct epoll_event wanted = { .events = EPOLLIN };
	pid_t own = getpid();

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, event, &wanted) == 0);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, inner, &wanted) == 0);
	CHECK(compare(own, own, KCMP_EPOLL_TFD, event, (long)&slot) == 0);
	CHECK(compare(own, own, KCMP_EPOLL_TFD, other, (long)&slot) > 0);
	CHECK(compare(own, own, KCMP_EPOLL_TFD, file, (long)&slot) > 0);
	CHECK(compare(own, own, KCMP_EPOLL_TFD, inner, (long)&nested) == 0);
	CHECK(compare(own, own, KCMP_EPOLL_TFD, event, (long)&nested) > 0);
	FAILS(ENOENT, compare(own, own, KCMP_EPOLL_TFD, event, (long)&none));
	FAILS(ENOENT, compare(own, own, KCMP_EPOLL_TFD, event, (long)&second));
	FAILS(EINVAL, compare(own, own, KCMP_EPOLL_TFD, event, (long)&no_set));
	FAILS(EBADF, compare(own, own, KCMP_EPOLL_TFD, event, (long)&closed));
	FAILS(EBADF, compare(own, own, KCMP_EPOLL_TFD, 900, (long)&slot));
	FAILS(EFAULT, compare(own, own, KCMP_EPOLL_TFD, event, 16));
}

CASE(wrong_arguments)
{
	FAILS(EINVAL, compare(getpid(), getpid(), 99, 0, 0));
	FAILS(ESRCH, compare(getpid(), 0x3ffffff, KCMP_VM, 0, 0));
	FAILS(ESRCH, compare(0, getpid(), KCMP_VM, 0, 0));
}

CASE(another_user_is_refused)
{
	pid_t first = getpid(), child;
	int status;

	if (getuid() != 0)
		return;
	child = fork();
	if (child == 0) {
		CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		FAILS(EPERM, compare(first, getpid(), KCMP_VM, 0, 0));
		FAILS(EPERM, compare(getpid(), first, KCMP_FILE, 0, 0));
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}
