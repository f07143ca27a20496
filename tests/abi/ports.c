// SPDX-License-Identifier: MIT OR Apache-2.0
// run: by a script
/*
 * I/O ports: ioperm, iopl, and /dev/port. The ports are those of a parallel port to which nothing
 * is connected: its data register keeps what is written there.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <linux/capability.h>

#include "check.h"
#include "children.h"

#define NAME "/dev/port"

/* The registers: data, state, control. */
#define DATA 0x378
#define CONTROL 0x37a

static int file;

/* The byte at the file's own position. */
static int next(void)
{
	unsigned char byte;

	CHECK(read(file, &byte, 1) == 1);
	return byte;
}

BEFORE_EACH
{
	syscall(SYS_close_range, 3, ~0U, 0);
	file = open(NAME, O_RDWR);
	CHECK(file == 3);
}

CASE(it_is_linuxs_device)
{
	struct stat status;
	char path[100] = "";

	CHECK(fstat(file, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == 0x104);
	CHECK(readlink("/proc/self/fd/3", path, sizeof(path)) > 0 && strcmp(path, NAME) == 0);
	CHECK(fcntl(file, F_GETFL) == (O_RDWR | 0100000));
}

CASE(a_byte_is_a_port)
{
	CHECK(lseek(file, DATA, SEEK_SET) == DATA && write(file, "\x5a", 1) == 1);
	CHECK(lseek(file, 0, SEEK_CUR) == DATA + 1);
	CHECK(lseek(file, -1, SEEK_CUR) == DATA && next() == 0x5a);
	CHECK(lseek(file, 0, SEEK_CUR) == DATA + 1);
	CHECK(pwrite(file, "\xa5", 1, DATA) == 1 && lseek(file, 0, SEEK_CUR) == DATA + 1);
	CHECK(lseek(file, DATA, SEEK_SET) == DATA && next() == 0xa5);
}

CASE(several_bytes_are_several_ports)
{
	unsigned char registers[3], alone[2];
	struct iovec parts[] = { { alone, 1 }, { alone + 1, 1 } };

	CHECK(pwrite(file, "\x12", 1, DATA) == 1 && pwrite(file, "\x08", 1, CONTROL) == 1);
	CHECK(pread(file, registers, 3, DATA) == 3);
	SAY("%#x, %#x", registers[0], registers[2]);
	CHECK(preadv(file, parts, 2, DATA) == 2 && alone[0] == 0x12 && alone[1] == registers[1]);
	CHECK(lseek(file, DATA, SEEK_SET) == DATA && readv(file, parts, 2) == 2);
	CHECK(alone[0] == 0x12 && lseek(file, 0, SEEK_CUR) == DATA + 2);
	CHECK(preadv2(file, parts, 1, DATA, 0) == 1 && alone[0] == 0x12);
	CHECK(pread(file, registers, 0, DATA) == 0);
}

CASE(programs_see_the_same_by_instructions)
{
	CHECK(ioperm(DATA, 3, 1) == 0);
	outb(0x3c, DATA);
	CHECK(inb(DATA) == 0x3c);
	CHECK(lseek(file, DATA, SEEK_SET) == DATA && next() == 0x3c);
	CHECK(pwrite(file, "\xc3", 1, DATA) == 1 && inb(DATA) == 0xc3);
	CHECK(ioperm(DATA, 3, 0) == 0);
}

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

CASE(copies_and_children_share_the_position)
{
	pid_t child;
	int copy = dup(file);

	CHECK(lseek(file, DATA, SEEK_SET) == DATA && lseek(copy, 0, SEEK_CUR) == DATA);
	child = fork();
	if (child == 0) {
		next();
		_exit(0);
	}
	CHECK(exits_with(child, 0) && lseek(copy, 0, SEEK_CUR) == DATA + 1);
	CHECK(lseek(open(NAME, O_RDONLY), 0, SEEK_CUR) == 0);
}

CASE(positions_are_bounded)
{
	char byte;

	FAILS(EINVAL, lseek(file, 0, SEEK_END));
	FAILS(EINVAL, lseek(file, 0, SEEK_DATA));
	FAILS(EINVAL, lseek(file, 0, 9));
	FAILS(EOVERFLOW, lseek(file, -1, SEEK_SET));
	FAILS(EINVAL, pread(file, &byte, 1, -1));
	FAILS(EINVAL, pwrite(file, &byte, 1, -1));
	CHECK(lseek(file, 0x10000, SEEK_SET) == 0x10000);
	CHECK(read(file, &byte, 1) == 0 && write(file, "", 1) == 0);
	CHECK(pread(file, &byte, 1, 0x7fffffff) == 0);
	CHECK(lseek(file, 0, SEEK_CUR) == 0x10000);
}

CASE(what_it_does_not_offer_fails)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct pollfd polled = { file, POLLIN | POLLOUT, 0 };
	char byte;
	int number;

	FAILS(ENOTTY, ioctl(file, 0x5401, &number));
	FAILS(ENODEV, (long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0));
	FAILS(EPERM, epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, file, &event));
	CHECK(poll(&polled, 1, 0) == 1 && polled.revents == (POLLIN | POLLOUT));
	FAILS(EFAULT, pread(file, at(1), 1, DATA));
	FAILS(EFAULT, pwrite(file, at(1), 1, DATA));
	FAILS(EBADF, pwrite(open(NAME, O_RDONLY), &byte, 1, DATA));
	FAILS(EBADF, pread(open(NAME, O_WRONLY), &byte, 1, DATA));
	FAILS(ENOTDIR, fchdir(file));
}

CASE(its_openings_lock_each_other)
{
	int other = open(NAME, O_RDONLY);

	CHECK(flock(file, LOCK_EX) == 0);
	FAILS(EWOULDBLOCK, flock(other, LOCK_EX | LOCK_NB));
	CHECK(close(file) == 0 && flock(other, LOCK_EX | LOCK_NB) == 0);
}

CASE(only_who_may_touch_ports_opens_it)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct sets[2];
	pid_t child = fork();

	if (child == 0) {
		CHECK(syscall(SYS_capget, &header, sets) == 0);
		sets[0].effective &= ~(1U << CAP_SYS_RAWIO);
		CHECK(syscall(SYS_capset, &header, sets) == 0);
		FAILS(EPERM, open(NAME, O_RDWR));
		FAILS(EPERM, ioperm(DATA, 1, 1));
		/* What is open stays so. */
		CHECK(lseek(file, DATA, SEEK_SET) == DATA);
		next();
		_exit(0);
	}
	CHECK(exits_with(child, 0));
}
