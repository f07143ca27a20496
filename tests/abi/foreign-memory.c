// SPDX-License-Identifier: MIT OR Apache-2.0
/* process_vm_readv and process_vm_writev: memory of other processes, and of the own one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include "check.h"

#define PAGE 4096

static char text[] = "what the parent has";
static char buffer[3 * PAGE];

static ssize_t take(pid_t pid, void *to, void *from, size_t length)
{
	struct iovec own = { to, length }, other = { from, length };

	return process_vm_readv(pid, &own, 1, &other, 1, 0);
}

static ssize_t put(pid_t pid, void *from, void *to, size_t length)
{
	struct iovec own = { from, length }, other = { to, length };

	return process_vm_writev(pid, &own, 1, &other, 1, 0);
}

CASE(a_process_reads_and_writes_itself)
{
	char first[4], second[20] = "", from[] = "abcdefgh";
	struct iovec own[] = { { first, 4 }, { NULL, 0 }, { second, 10 } };
	struct iovec other[] = { { from, 2 }, { at(16), 0 }, { from + 4, 3 }, { from, 1 } };

	CHECK(process_vm_readv(getpid(), own, 3, other, 4, 0) == 6);
	CHECK(memcmp(first, "abef", 4) == 0 && strcmp(second, "ga") == 0);
	CHECK(put(getpid(), "XY", from + 1, 2) == 2 && strcmp(from, "aXYdefgh") == 0);
}

/* A child that waits, and ends with 0 if its memory is `expected` then. */
struct child {
	pid_t pid;
	int ends[2];
};

static struct child start(const char *has, const char *expected)
{
	struct child child;
	int ready[2];
	char byte;

	CHECK(pipe(child.ends) == 0 && pipe(ready) == 0);
	child.pid = fork();
	if (child.pid == 0) {
		close(child.ends[1]);
		strcpy(text, has);
		write(ready[1], "", 1);
		read(child.ends[0], &byte, 1);
		_exit(strcmp(text, expected) != 0);
	}
	close(child.ends[0]);
	CHECK(read(ready[0], &byte, 1) == 1);
	close(ready[0]);
	close(ready[1]);
	return child;
}

static int ends(struct child child)
{
	int status;

	close(child.ends[1]);
	CHECK(waitpid(child.pid, &status, 0) == child.pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

CASE(a_parent_reads_and_writes_its_child)
{
	struct child child = start("what the child has", "what the other had");

	CHECK(take(child.pid, buffer, text, sizeof(text)) == sizeof(text));
	CHECK(strcmp(buffer, "what the child has") == 0);
	CHECK(strcmp(text, "what the parent has") == 0);
	CHECK(put(child.pid, "other had", text + 9, 10) == 10);
	CHECK(ends(child) == 0);
	FAILS(ESRCH, take(child.pid, buffer, text, 1));
}

static void *idle(void *argument)
{
	*(volatile pid_t *)argument = gettid();
	for (;;)
		pause();
	return NULL;
}

CASE(any_thread_names_its_process)
{
	volatile pid_t tid = 0;
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, idle, (void *)&tid) == 0);
	while (tid == 0)
		usleep(1000);
	CHECK(take(tid, buffer, text, 4) == 4 && memcmp(buffer, "what", 4) == 0);
}

/* Up to what is no memory, or may not be touched. */
CASE(as_much_as_there_is)
{
	const int kind = MAP_PRIVATE | MAP_ANONYMOUS;
	char *map = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, kind, -1, 0);
	struct iovec own = { buffer, 3 * PAGE };
	struct iovec other[] = { { map + PAGE - 100, 50 }, { map + PAGE - 10, 20 }, { map, 30 } };
	pid_t own_pid = getpid(), child;

	CHECK(map != MAP_FAILED);
	memset(map, 'm', 2 * PAGE);
	CHECK(munmap(map + 2 * PAGE, PAGE) == 0);
	child = fork();
	if (child == 0)
		for (;;)
			pause();
	for (int i = 0; i < 2; i++) {
		pid_t pid = i ? child : own_pid;

		PART("of %s", i ? "a child" : "itself");
		CHECK(take(pid, buffer, map, 3 * PAGE) == 2 * PAGE);
		CHECK(buffer[2 * PAGE - 1] == 'm');
		CHECK(take(pid, buffer, map + 10, 3 * PAGE) == 2 * PAGE - 10);
		FAILS(EFAULT, take(pid, buffer, map + 2 * PAGE, 1));
		FAILS(EFAULT, take(pid, buffer, at(-4096), 1));
		FAILS(EFAULT, take(pid, buffer, at(16), 1));
		CHECK(put(pid, buffer, map + 2 * PAGE - 1, 2) == 1);
		/* The caller's own. */
		CHECK(take(pid, map + 2 * PAGE - 5, map, 10) == 5);
		CHECK(put(pid, map + 2 * PAGE - 5, buffer, 10) == 5);
		FAILS(EFAULT, take(pid, at(16), map, 10));
		FAILS(EFAULT, put(pid, at(16), map, 10));
		CHECK(process_vm_readv(pid, &own, 1, other, 3, 0) == 100);
	}
	kill(child, SIGKILL);
	CHECK(waitpid(child, NULL, 0) == child);
	CHECK(mprotect(map, PAGE, PROT_NONE) == 0);
	CHECK(mprotect(map + PAGE, PAGE, PROT_READ) == 0);
	FAILS(EFAULT, take(own_pid, buffer, map, 10));
	CHECK(take(own_pid, buffer, map + PAGE, 10) == 10);
	FAILS(EFAULT, put(own_pid, buffer, map + PAGE, 10));
}

CASE(wrong_arguments)
{
	static struct iovec many[1025];
	struct iovec own = { buffer, 10 }, other = { text, 10 }, none = { text, 0 };
	struct iovec endless = { buffer, -1 }, kernel = { at(-4096), 10 };

	FAILS(EINVAL, process_vm_readv(getpid(), &own, 1, &other, 1, 1));
	FAILS(EINVAL, process_vm_readv(getpid(), many, 1025, &other, 1, 0));
	FAILS(EINVAL, process_vm_readv(getpid(), &own, 1, many, 1025, 0));
	FAILS(EINVAL, process_vm_readv(getpid(), &endless, 1, &other, 1, 0));
	FAILS(EFAULT, process_vm_readv(getpid(), at(16), 1, &other, 1, 0));
	FAILS(EFAULT, process_vm_readv(getpid(), &own, 1, at(16), 1, 0));
	FAILS(EFAULT, process_vm_readv(getpid(), &kernel, 1, &other, 1, 0));
	FAILS(ESRCH, process_vm_readv(0x3ffffff, &own, 1, &other, 1, 0));
	FAILS(ESRCH, process_vm_readv(0, &own, 1, &other, 1, 0));
	/* Nothing to do. */
	CHECK(process_vm_readv(0x3ffffff, &none, 1, at(16), 1, 0) == 0);
	CHECK(process_vm_readv(0x3ffffff, &own, 1, &none, 1, 0) == 0);
	CHECK(process_vm_readv(getpid(), &own, 1, NULL, 0, 0) == 0);
	CHECK(process_vm_readv(getpid(), NULL, 0, &other, 1, 0) == 0);
}

/* Whoever may not trace a process may not reach its memory. */
CASE(another_user_is_refused)
{
	struct child victim;
	pid_t thief, first = getpid();
	int status;

	if (getuid() != 0)
		return;
	victim = start("secret", "secret");
	thief = fork();
	if (thief == 0) {
		CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		FAILS(EPERM, take(victim.pid, buffer, text, 4));
		FAILS(EPERM, put(victim.pid, buffer, text, 4));
		FAILS(EPERM, take(first, buffer, text, 4));
		CHECK(take(getpid(), buffer, text, 4) == 4);
		_exit(0);
	}
	CHECK(waitpid(thief, &status, 0) == thief && status == 0);
	CHECK(ends(victim) == 0);
	/* Root reaches all. */
	victim = start("mine", "mine");
	thief = fork();
	if (thief == 0) {
		CHECK(setgid(65534) == 0 && setuid(65534) == 0);
		for (;;)
			pause();
	}
	CHECK(take(thief, buffer, text, 4) == 4);
	kill(thief, SIGKILL);
	CHECK(waitpid(thief, &status, 0) == thief);
	CHECK(ends(victim) == 0);
}
