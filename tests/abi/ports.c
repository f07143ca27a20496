// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * I/O ports: ioperm and iopl. The ports are those of a parallel port to which nothing
 * is connected: its data register keeps what is written there.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/io.h>
#include <linux/capability.h>

#include "check.h"
#include "children.h"

/* The registers: data, state, control. */
#define DATA 0x378
#define CONTROL 0x37a

CASE(what_is_not_permitted_any_more_faults)
{
	pid_t child = fork();

	if (child == 0) {
		CHECK(ioperm(DATA, 1, 1) == 0 && ioperm(DATA, 1, 0) == 0);
		inb(DATA);
		_exit(0);
	}
	CHECK(ends_by(child, SIGSEGV));
}

CASE(the_highest_level_permits_all)
{
	CHECK(iopl(3) == 0);
	outb(0x11, DATA);
	CHECK(inb(DATA) == 0x11 && iopl(0) == 0);
	FAILS(EINVAL, iopl(4));
}

/* Reads the port, or faults. */
ROLE(reads_the_port)
{
	(void)count, (void)arguments;
	return inb(DATA);
}

static void *read_in_thread(void *unused)
{
	(void)unused;
	return (void *)(long)inb(DATA);
}

/* What a thread, a child and an executed program read. */
static void check_heirs(int expected)
{
	pthread_t thread;
	void *got = NULL;
	pid_t child;

	CHECK(pthread_create(&thread, NULL, read_in_thread, NULL) == 0);
	CHECK(pthread_join(thread, &got) == 0 && (long)got == expected);
	child = fork();
	if (child == 0)
		_exit(inb(DATA));
	CHECK(exits_with(child, expected));
	child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "reads_the_port", NULL);
		_exit(127);
	}
	CHECK(exits_with(child, expected));
	/* What a child gives up its parent keeps. */
	child = fork();
	if (child == 0) {
		CHECK(iopl(0) == 0 && ioperm(DATA, 1, 0) == 0);
		_exit(0);
	}
	CHECK(exits_with(child, 0) && inb(DATA) == expected);
}

CASE(threads_children_and_what_they_execute_have_the_ports_too)
{
	CHECK(ioperm(DATA, 1, 1) == 0);
	outb(0x21, DATA);
	check_heirs(0x21);
	CHECK(ioperm(DATA, 1, 0) == 0 && iopl(3) == 0);
	check_heirs(0x21);
	CHECK(iopl(0) == 0);
}

CASE(the_lowest_level_leaves_what_was_permitted_alone)
{
	pid_t child;

	CHECK(ioperm(DATA, 1, 1) == 0 && iopl(3) == 0 && iopl(0) == 0);
	outb(0x42, DATA);
	CHECK(inb(DATA) == 0x42);
	child = fork();
	if (child == 0) {
		inb(CONTROL);
		_exit(0);
	}
	CHECK(ends_by(child, SIGSEGV) && ioperm(DATA, 1, 0) == 0);
}

CASE(a_right_is_needed_to_get_ports)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct sets[2];
	pid_t child = fork();

	if (child == 0) {
		CHECK(syscall(SYS_capget, &header, sets) == 0);
		sets[0].effective &= ~(1U << CAP_SYS_RAWIO);
		CHECK(syscall(SYS_capset, &header, sets) == 0);
		FAILS(EPERM, ioperm(DATA, 1, 1));
		_exit(0);
	}
	CHECK(exits_with(child, 0));
}
