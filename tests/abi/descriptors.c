// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Descriptors: numbers, copies, flags, names and close-on-exec, over files of the realm and of
 * Linux.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "check.h"

/* Opens a local file as 3, one of Linux as 4 and another local one as 5. */
static int open_devices(void)
{
	return open("/dev/null", O_RDWR) == 3 && open("/etc/passwd", O_RDONLY) == 4 && open("/dev/zero", O_RDONLY) == 5;
}

/* It does not matter whether the realm or Linux has the file. */
CASE(the_lowest_free_number_is_taken)
{
	int ends[2], pair[2];

	CHECK(open_devices());
	CHECK(close(4) == 0 && open("/dev/null", O_WRONLY) == 4);
	CHECK(close(3) == 0 && open("/etc/hostname", O_RDONLY) == 3);
	CHECK(close(3) == 0 && close(4) == 0 && close(5) == 0);
	CHECK(open("/dev/null", O_RDONLY) == 3 && open("/dev/zero", O_RDONLY) == 4);
	CHECK(close(3) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && pair[0] == 3 &&
	      pair[1] == 5);
	CHECK(pipe(ends) == 0 && ends[0] == 6 && ends[1] == 7);
	CHECK(close(4) == 0 && dup(6) == 4 && dup(3) == 8 && dup(0) == 9);
	CHECK(close(5) == 0 && fcntl(7, F_DUPFD, 0) == 5 && fcntl(3, F_DUPFD, 20) == 20 &&
	      fcntl(7, F_DUPFD, 20) == 21);
	CHECK(close(20) == 0 && fcntl(7, F_DUPFD_CLOEXEC, 20) == 20 &&
	      fcntl(20, F_GETFD) == FD_CLOEXEC);
	CHECK(eventfd(0, 0) == 10 && close(10) == 0 && memfd_create("m", 0) == 10);
	for (int fd = 3; fd < 30; fd++)
		close(fd);
	CHECK(open("/etc/passwd", O_RDONLY) == 3);
	close(3);
}

CASE(closed_numbers_are_refused)
{
	int ends[2];

	FAILS(EBADF, close(3));
	FAILS(EBADF, close(-1));
	FAILS(EBADF, close(100000));
	FAILS(EBADF, read(4, ends, 1));
}

CASE(many_files_are_open_at_once)
{
	int right = 1;

	for (int i = 0; i < 300; i++)
		right &= open(i % 3 ? "/dev/null" : "/etc/passwd", O_RDONLY) == 3 + i;
	CHECK(right);
	for (int i = 0; i < 300; i += 7)
		close(3 + i);
	for (int i = 0; i < 300; i += 7)
		right &= open(i % 2 ? "/dev/zero" : "/etc/passwd", O_RDONLY) == 3 + i;
	CHECK(right);
}

CASE(close_range_closes_many_files)
{
	int right = 1;

	for (int i = 0; i < 300; i++)
		right &= open(i % 3 ? "/dev/null" : "/etc/passwd", O_RDONLY) == 3 + i;
	CHECK(right);
	CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
	FAILS(EBADF, fcntl(3, F_GETFD));
	FAILS(EBADF, fcntl(250, F_GETFD));
}

/* Who shares its descriptors with nobody has them for itself already. */
CASE(close_range_gives_who_is_alone_a_table_of_its_own)
{
	enum { UNSHARE = 2, CLOEXEC = 4 };

	CHECK(open("/dev/null", O_RDONLY) == 3 && open("/etc/passwd", O_RDONLY) == 4);
	FAILS(EINVAL, syscall(SYS_close_range, 3, 2, UNSHARE));
	FAILS(EINVAL, syscall(SYS_close_range, 3, 4, 1));
	CHECK(syscall(SYS_close_range, 3, ~0U, UNSHARE | CLOEXEC) == 0);
	CHECK(fcntl(3, F_GETFD) == FD_CLOEXEC && fcntl(4, F_GETFD) == FD_CLOEXEC);
	CHECK(syscall(SYS_close_range, 4, ~0U, UNSHARE) == 0 && fcntl(3, F_GETFD) == FD_CLOEXEC);
	FAILS(EBADF, fcntl(4, F_GETFD));
	CHECK(close(3) == 0);
}

/* The files and the numbers are local or remote. */
CASE(a_copy_takes_the_place_of_any_file)
{
	struct stat status;
	char byte = 'x';
	int ends[2];

	CHECK(pipe(ends) == 0);
	/* Local on a free number, on a local, on a remote. */
	CHECK(dup2(ends[1], 10) == 10 && write(10, "a", 1) == 1 && read(ends[0], &byte, 1) == 1 &&
	      byte == 'a');
	CHECK(open("/dev/null", O_WRONLY) == 5 && dup2(ends[1], 5) == 5 && write(5, "b", 1) == 1);
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'b');
	CHECK(open("/etc/passwd", O_RDONLY) == 6 && dup2(ends[1], 6) == 6 && write(6, "c", 1) == 1);
	CHECK(read(ends[0], &byte, 1) == 1 && byte == 'c');
	/* Remote on all of them. */
	CHECK(open("/etc/passwd", O_RDONLY) == 7 && dup2(7, 6) == 6 && dup2(7, 10) == 10 && dup2(7, 11) == 11);
	CHECK(fstat(6, &status) == 0 && S_ISREG(status.st_mode) && fstat(10, &status) == 0 &&
	      S_ISREG(status.st_mode));
	CHECK(fstat(11, &status) == 0 && S_ISREG(status.st_mode) && fstat(5, &status) == 0 &&
	      S_ISFIFO(status.st_mode));
}

CASE(a_copy_onto_itself_changes_nothing)
{
	int ends[2];

	CHECK(pipe(ends) == 0 && dup2(ends[1], 5) == 5 && dup2(open("/etc/passwd", O_RDONLY), 7) == 7);
	CHECK(dup2(7, 7) == 7 && dup2(5, 5) == 5);
}

CASE(bad_copies_are_refused)
{
	struct stat status;
	int ends[2];

	CHECK(pipe(ends) == 0 && dup2(ends[1], 5) == 5 && dup2(open("/etc/passwd", O_RDONLY), 7) == 7);
	FAILS(EINVAL, dup3(7, 7, 0));
	FAILS(EINVAL, dup3(5, 5, 0));
	FAILS(EINVAL, dup3(5, 8, 1));
	FAILS(EBADF, dup2(99, 5));
	FAILS(EBADF, dup2(99, 99));
	FAILS(EBADF, dup2(5, -1));
	FAILS(EBADF, dup2(5, 1 << 30));
	CHECK(fstat(5, &status) == 0 && S_ISFIFO(status.st_mode));
}

CASE(a_copy_has_its_own_close_on_exec_flag)
{
	int ends[2];

	CHECK(pipe(ends) == 0 && dup2(ends[1], 5) == 5 && dup2(open("/etc/passwd", O_RDONLY), 7) == 7);
	CHECK(dup3(5, 12, O_CLOEXEC) == 12 && fcntl(12, F_GETFD) == FD_CLOEXEC &&
	      fcntl(5, F_GETFD) == 0);
	CHECK(dup2(12, 13) == 13 && fcntl(13, F_GETFD) == 0 && dup2(5, 12) == 12 &&
	      fcntl(12, F_GETFD) == 0);
}

CASE(the_last_copy_closed_ends_the_pipe)
{
	char byte = 'x';
	int ends[2];

	CHECK(pipe(ends) == 0 && dup2(ends[1], 5) == 5 && dup2(5, 12) == 12 && dup2(5, 13) == 13);
	close(5);
	close(12);
	close(13);
	close(ends[1]);
	CHECK(read(ends[0], &byte, 1) == 0);
	CHECK(open("/dev/null", O_WRONLY) == 4);
	CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
}

CASE(close_on_exec_is_a_flag_of_the_number)
{
	int ends[2];

	CHECK(pipe2(ends, O_CLOEXEC) == 0 && fcntl(ends[0], F_GETFD) == 1 &&
	      fcntl(ends[1], F_GETFD) == 1);
	CHECK(fcntl(ends[0], F_SETFD, 0) == 0 && fcntl(ends[0], F_GETFD) == 0 &&
	      fcntl(ends[1], F_GETFD) == 1);
	CHECK(ioctl(ends[0], FIOCLEX) == 0 && fcntl(ends[0], F_GETFD) == 1);
	CHECK(ioctl(ends[0], FIONCLEX) == 0 && fcntl(ends[0], F_GETFD) == 0);
}

CASE(fcntl_and_ioctl_set_the_status_flags)
{
	int ends[2], on = 1, off = 0;
	char byte;

	CHECK(pipe(ends) == 0);
	CHECK(fcntl(ends[0], F_GETFL) == O_RDONLY && fcntl(ends[1], F_GETFL) == O_WRONLY);
	CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 &&
	      fcntl(ends[0], F_GETFL) == (O_RDONLY | O_NONBLOCK));
	FAILS(EAGAIN, read(ends[0], &byte, 1));
	CHECK(ioctl(ends[0], FIONBIO, &off) == 0 && fcntl(ends[0], F_GETFL) == O_RDONLY);
	CHECK(ioctl(ends[0], FIONBIO, &on) == 0);
	FAILS(EAGAIN, read(ends[0], &byte, 1));
}

CASE(fcntl_keeps_the_owner)
{
	struct f_owner_ex owner = { 4711, 0 }, told;
	int ends[2];

	CHECK(pipe(ends) == 0);
	CHECK(fcntl(ends[0], F_GETOWN) == 0 && fcntl(ends[0], F_GETSIG) == 0);
	CHECK(fcntl(ends[0], F_SETOWN, getpid()) == 0 && fcntl(ends[0], F_GETOWN) == getpid());
	CHECK(fcntl(dup(ends[0]), F_GETOWN) == getpid() && fcntl(ends[1], F_GETOWN) == 0);
	CHECK(fcntl(ends[0], F_SETOWN, -getpgrp()) == 0 && fcntl(ends[0], F_GETOWN) == -getpgrp());
	CHECK(fcntl(ends[0], F_GETOWN_EX, &told) == 0);
	CHECK(told.type == F_OWNER_PGRP && told.pid == getpgrp());
	FAILS(EINVAL, fcntl(ends[0], F_SETOWN_EX, &owner));
	FAILS(EFAULT, fcntl(ends[0], F_SETOWN_EX, 1));
	FAILS(ESRCH, fcntl(ends[0], F_SETOWN, 1 << 30));
	owner.type = F_OWNER_TID;
	owner.pid = gettid();
	CHECK(fcntl(ends[0], F_SETOWN_EX, &owner) == 0 && fcntl(ends[0], F_GETOWN) == gettid());
	CHECK(fcntl(ends[0], F_SETOWN, 0) == 0 && fcntl(ends[0], F_GETOWN) == 0);
	CHECK(fcntl(ends[0], F_SETSIG, SIGRTMIN) == 0 && fcntl(ends[0], F_GETSIG) == SIGRTMIN);
	FAILS(EINVAL, fcntl(ends[0], F_SETSIG, 65));
}

/* The flags belong to the open file, whoever changes them. */
CASE(copies_share_the_status_flags)
{
	int ends[2], copy;

	CHECK(pipe2(ends, O_NONBLOCK) == 0);
	copy = dup(ends[0]);
	CHECK(fcntl(copy, F_GETFL) == (O_RDONLY | O_NONBLOCK) && fcntl(copy, F_SETFL, 0) == 0);
	CHECK(fcntl(ends[0], F_GETFL) == O_RDONLY);
}

CASE(bad_commands_are_refused)
{
	int ends[2], copy, on = 1;

	CHECK(pipe(ends) == 0);
	copy = dup(ends[0]);
	FAILS(EINVAL, fcntl(copy, 4711, 0));
	FAILS(EINVAL, fcntl(copy, F_DUPFD, -1));
	FAILS(EINVAL, fcntl(copy, F_DUPFD, 1 << 30));
	FAILS(EBADF, fcntl(99, F_GETFL));
	FAILS(ENOTTY, ioctl(copy, 0x5401, &on));
}

CASE(a_device_has_flags_and_is_no_terminal)
{
	int on = 1;

	int null = open("/dev/null", O_RDWR | O_CLOEXEC | O_NONBLOCK);

	CHECK(fcntl(null, F_GETFD) == 1 &&
	      (fcntl(null, F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == (O_RDWR | O_NONBLOCK));
	FAILS(ENOTTY, ioctl(null, 0x5401, &on));
	CHECK(!isatty(null));
}

CASE(devices_give_and_take_what_they_should)
{
	char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR), full = openat(99, "/dev/full", O_RDWR);

	CHECK(null == 3 && zero == 4 && full == 5);
	memset(page, 'x', 2 * 4096);
	CHECK(read(null, page, 10) == 0 && page[0] == 'x' && write(null, page, 4096) == 4096);
	CHECK(read(zero, page, 5) == 5 && page[0] == 0 && page[4] == 0 && page[5] == 'x');
	CHECK(read(zero, page, 0) == 0 && write(zero, page, 100) == 100 &&
	      write(null, page, 0) == 0);
	CHECK(read(full, page, 6) == 6 && page[5] == 0 && page[6] == 'x');
	FAILS(ENOSPC, write(full, page, 1));
}

CASE(devices_take_vectors)
{
	char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR);
	struct iovec parts[3] = { { page, 10 }, { page + 100, 0 }, { page + 4090, 10 } };

	memset(page, 'x', 2 * 4096);
	CHECK(readv(zero, parts, 3) == 20 && page[9] == 0 && page[10] == 'x' && page[4089] == 'x');
	CHECK(page[4090] == 0 && page[4099] == 0 && page[4100] == 'x');
	CHECK(writev(null, parts, 3) == 20 && writev(null, parts, 0) == 0);
}

CASE(bad_vectors_are_refused)
{
	char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int null = open("/dev/null", O_RDWR);
	struct iovec parts[3] = { { page, 10 }, { page + 100, 0 }, { page + 4090, 10 } };

	FAILS(EINVAL, syscall(SYS_writev, null, parts, -1));
	FAILS(EINVAL, syscall(SYS_writev, null, parts, 2000));
	parts[1].iov_len = -1;
	FAILS(EINVAL, writev(null, parts, 3));
	FAILS(EFAULT, writev(null, at(16), 3));
}

CASE(bad_addresses_are_refused)
{
	char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR);

	FAILS(EFAULT, read(zero, at(16), 1));
	FAILS(EFAULT, read(zero, at(-4096), 1));
	FAILS(EFAULT, write(null, at(-4096), 1));
	mprotect(page + 4096, 4096, PROT_NONE);
	CHECK(read(zero, page + 4000, 200) != 200);
	FAILS(EFAULT, read(zero, page + 4096, 1));
	mprotect(page + 4096, 4096, PROT_READ);
	FAILS(EFAULT, read(zero, page + 4096, 1));
	mprotect(page + 4096, 4096, PROT_READ | PROT_WRITE);
}

CASE(devices_have_no_position)
{
	char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR);

	CHECK(pread(zero, page, 10, 12345) == 10 && pwrite(null, page, 10, 12345) == 10);
	FAILS(EINVAL, pread(zero, page, 10, -1));
	CHECK(lseek(null, 100, SEEK_SET) == 0 && lseek(zero, 5, SEEK_CUR) == 0);
	FAILS(EINVAL, lseek(null, 0, 99));
}

CASE(devices_have_numbers)
{
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR);
	struct stat status;

	CHECK(fstat(null, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == 0x103);
	CHECK(fstatat(zero, "", &status, AT_EMPTY_PATH) == 0 && status.st_rdev == 0x105);
	CHECK(fstatat(zero, "/dev/full", &status, 0) == 0 && status.st_rdev == 0x107);
}

CASE(devices_are_no_folders_files_or_sockets)
{
	char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR);

	FAILS(ENOTDIR, openat(null, "x", O_RDONLY));
	FAILS(ENOTDIR, fchdir(null));
	FAILS(EINVAL, ftruncate(null, 0));
	FAILS(EINVAL, fsync(null));
	FAILS(ENOTSOCK, listen(zero, 1));
	CHECK(write(null, page, 1) == 1 && read(zero, page, 1) == 1);
}

CASE(the_null_device_cannot_be_mapped)
{
	int null = open("/dev/null", O_RDWR);

	FAILS(ENODEV, mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, null, 0) == MAP_FAILED ? -1 : 0);
}

CASE(the_zero_device_maps_zeros)
{
	int zero = open("/dev/zero", O_RDWR);

	char *zeros = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);

	CHECK(zeros != MAP_FAILED && zeros[0] == 0 && (zeros[5000] = 7) == 7);
	munmap(zeros, 8192);
}

CASE(a_closed_device_is_refused)
{
	int null = open("/dev/null", O_RDWR);
	char byte;

	close(null);
	FAILS(EBADF, read(null, &byte, 1));
}

CASE(the_access_mode_holds)
{
	char page[10];
	int null = open("/dev/null", O_RDONLY), zero = open("/dev/zero", O_WRONLY);

	FAILS(EBADF, write(null, page, 1));
	FAILS(EBADF, read(zero, page, 1));
}

CASE(device_names_are_looked_up_as_others)
{
	char page[10] = "";
	int null;

	FAILS(ENOTDIR, open("/dev/null", O_RDONLY | O_DIRECTORY));
	FAILS(EEXIST, open("/dev/null", O_RDONLY | O_CREAT | O_EXCL, 0600));
	FAILS(ENOTDIR, open("/dev/null/x", O_RDONLY));
	CHECK((null = open("/dev/../dev/null", O_WRONLY)) == 3 && write(null, page, 1) == 1 && close(null) == 0);
	CHECK((null = creat("/dev/null", 0600)) == 3 && write(null, page, 1) == 1 && close(null) == 0);
	CHECK((null = open("/dev/null", O_RDWR | O_TRUNC | O_APPEND | O_CREAT, 0600)) == 3 &&
	      close(null) == 0);
}

CASE(a_child_has_numbers_of_its_own)
{
	int ends[2], back[2], status;
	char text[20] = "";

	CHECK(pipe(ends) == 0 && pipe(back) == 0);
	pid_t child = fork();

	if (child == 0) {
		close(ends[1]);
		close(back[0]);
		if (read(ends[0], text, 5) != 5 || memcmp(text, "hello", 5))
			_exit(1);
		/* The child's numbers are its own. */
		if (open("/dev/null", O_RDONLY) != 4 || open("/etc/passwd", O_RDONLY) != 5 || close(3) != 0)
			_exit(2);
		if (write(back[1], "world", 5) != 5)
			_exit(3);
		_exit(42);
	}
	close(ends[0]);
	close(back[1]);
	CHECK(write(ends[1], "hello", 5) == 5 && read(back[0], text, 20) == 5 &&
	      memcmp(text, "world", 5) == 0);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
	      WEXITSTATUS(status) == 42);
	CHECK(read(back[0], text, 1) == 0);
	CHECK(close(4) == 0 && close(5) == 0 && open("/dev/zero", O_RDONLY) == 3 && close(3) == 0);
}

/*
 * Does what a shell does for $(...) in $(...): in each child a pipe of its own takes the place of
 * the parent's.
 */
static void nested(int depth)
{
	int ends[2], status;
	char text[20] = "";

	if (pipe(ends) != 0)
		_exit(1);
	pid_t child = fork();

	if (child == 0) {
		if (dup2(ends[1], 10) != 10 || dup2(ends[0], 11) != 11 || close(ends[0]) != 0 ||
		    close(ends[1]) != 0)
			_exit(2);
		if (depth == 0)
			_exit(write(10, "deep", 4) != 4);
		nested(depth - 1);
		_exit(write(10, "er", 2) != 2);
	}
	close(ends[1]);
	if (waitpid(child, &status, 0) != child || status != 0)
		_exit(3);
	int length = 0, got;

	while ((got = read(ends[0], text + length, sizeof(text) - length)) > 0)
		length += got;
	close(ends[0]);
	if (depth == 3)
		CHECK(length == 2 && memcmp(text, "er", 2) == 0);
	else if (length == 0)
		_exit(4);
}

CASE(pipes_of_nested_children_take_the_place_of_the_parents)
{
	nested(3);
}

/* Where the link of a descriptor in a folder leads. */
static const char *leads(const char *folder, int fd)
{
	static char text[100];
	char name[40];
	long length;

	sprintf(name, "%s/%d", folder, fd);
	length = readlink(name, text, sizeof(text) - 1);
	text[length < 0 ? 0 : length] = 0;
	return text;
}

/*
 * Tells whether a folder lists each open descriptor once, and nothing else. Reads `room` bytes at a
 * time.
 */
static int lists(const char *folder, size_t room)
{
	static char seen[4096];
	char buffer[4096] __attribute__((aligned(8)));
	int fd = open(folder, O_RDONLY | O_DIRECTORY);
	long length;

	memset(seen, 0, sizeof(seen));
	while ((length = syscall(SYS_getdents64, fd, buffer, room)) > 0)
		for (char *entry = buffer; entry < buffer + length;
		     entry += *(unsigned short *)(entry + 16))
			if (entry[19] != '.')
				seen[atoi(entry + 19) & 4095]++;
	for (int i = 0; i < 4096; i++)
		if (seen[i] != (fcntl(i, F_GETFD) != -1))
			length = -1;
	close(fd);
	return length == 0;
}

CASE(links_lead_to_what_is_open)
{
	int event = eventfd(0, 0), zero = open("/dev/zero", O_RDONLY), ends[2],
	    timer = timerfd_create(CLOCK_MONOTONIC, 0);
	char wanted[40];
	struct stat status;

	CHECK(pipe(ends) == 0 && fstat(ends[0], &status) == 0);
	sprintf(wanted, "pipe:[%lu]", (unsigned long)status.st_ino);
	CHECK(strcmp(leads("/proc/self/fd", ends[0]), wanted) == 0 && strcmp(leads("/dev/fd", ends[1]), wanted) == 0);
	CHECK(strcmp(leads("/proc/self/fd", event), "anon_inode:[eventfd]") == 0 && strcmp(leads("/dev/fd", timer), "anon_inode:[timerfd]") == 0);
	CHECK(strcmp(leads("/proc/self/fd", zero), "/dev/zero") == 0);
}

CASE(folders_list_what_is_open)
{
	int ends[2];

	CHECK(pipe(ends) == 0 && eventfd(0, 0) == 5 && timerfd_create(CLOCK_MONOTONIC, 0) == 6 &&
	      open("/dev/zero", O_RDONLY) == 7);
	CHECK(lists("/proc/self/fd", 4096) && lists("/proc/self/fdinfo", 4096) && lists("/proc/thread-self/fd", 24));
}

CASE(readlink_cuts_a_link_short)
{
	int event = eventfd(0, 0);
	char name[40], text[8] = "xxxxxxx";

	sprintf(name, "/dev/fd/%d", event);
	CHECK(readlinkat(AT_FDCWD, name, text, 4) == 4 && strcmp(text, "anonxxx") == 0);
	FAILS(EINVAL, readlink(name, text, 0));
	FAILS(EFAULT, readlink(name, at(16), 4));
	close(event);
	FAILS(ENOENT, readlink(name, text, 4));
}

CASE(a_name_says_what_its_file_is)
{
	char name[40];
	struct stat status, same;
	struct statx more;
	int ends[2];

	CHECK(pipe(ends) == 0);
	sprintf(name, "/dev/fd/%d", ends[0]);
	CHECK(stat(name, &status) == 0 && S_ISFIFO(status.st_mode) && fstat(ends[0], &same) == 0 &&
	      status.st_ino == same.st_ino);
	CHECK(statx(AT_FDCWD, name, 0, STATX_BASIC_STATS, &more) == 0 && S_ISFIFO(more.stx_mode) &&
	      more.stx_ino == status.st_ino);
	CHECK(lstat(name, &status) == 0 && S_ISLNK(status.st_mode));
}

CASE(a_name_opens_its_file_once_more)
{
	char name[40], text[10] = "";
	int ends[2], reader, writer;

	CHECK(pipe(ends) == 0);
	sprintf(name, "/dev/fd/%d", ends[0]);
	reader = open(name, O_RDONLY | O_NONBLOCK);
	CHECK(fcntl(reader, F_GETFL) & O_NONBLOCK && !(fcntl(ends[0], F_GETFL) & O_NONBLOCK));
	FAILS(EAGAIN, read(reader, text, 1));
	FAILS(EBADF, write(reader, text, 1));
	sprintf(name, "/proc/self/fd/%d", ends[1]);
	writer = open(name, O_WRONLY | O_CLOEXEC);
	CHECK(fcntl(writer, F_GETFD) == FD_CLOEXEC && write(writer, "again", 5) == 5 &&
	      read(reader, text, 10) == 5);
}

CASE(a_pipe_ends_with_the_last_of_its_writers)
{
	char name[40], text[10] = "";
	int ends[2], reader, writer;

	CHECK(pipe(ends) == 0);
	sprintf(name, "/dev/fd/%d", ends[0]);
	reader = open(name, O_RDONLY | O_NONBLOCK);
	sprintf(name, "/proc/self/fd/%d", ends[1]);
	writer = open(name, O_WRONLY);
	close(ends[1]);
	FAILS(EAGAIN, read(reader, text, 1));
	close(writer);
	CHECK(read(reader, text, 1) == 0);
	FAILS(ENOENT, open(name, O_WRONLY));
}

CASE(a_name_brings_the_other_end_back)
{
	char name[40], text[10] = "";
	int ends[2], reader, writer;

	CHECK(pipe(ends) == 0);
	sprintf(name, "/dev/fd/%d", ends[0]);
	reader = open(name, O_RDONLY | O_NONBLOCK);
	close(ends[1]);
	sprintf(name, "/dev/fd/%d", ends[0]);
	writer = open(name, O_WRONLY);
	CHECK(writer >= 0 && write(writer, "x", 1) == 1 && read(reader, text, 2) == 1);
	FAILS(ELOOP, open(name, O_RDONLY | O_NOFOLLOW));
	FAILS(ENOTDIR, open(name, O_RDONLY | O_DIRECTORY));
}

CASE(a_name_gives_nobody_the_other_end_of_another_users_pipe)
{
	int ends[2], status;
	pid_t child;

	CHECK(geteuid() == 0 && pipe(ends) == 0);
	child = fork();
	if (child == 0) {
		char name[40];
		struct stat of;
		int own[2];

		CHECK(setresuid(1, 1, 1) == 0);
		sprintf(name, "/dev/fd/%d", ends[0]);
		FAILS(EACCES, open(name, O_WRONLY));
		FAILS(EACCES, open(name, O_RDONLY));
		CHECK(fstat(ends[0], &of) == 0 && of.st_uid == 0);
		CHECK(pipe(own) == 0 && fstat(own[0], &of) == 0 && of.st_uid == 1);
		sprintf(name, "/dev/fd/%d", own[0]);
		CHECK(open(name, O_WRONLY) >= 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

CASE(an_eventfd_cannot_be_opened_by_name)
{
	char name[40];
	int event = eventfd(0, 0);

	sprintf(name, "/dev/fd/%d", event);
	FAILS(ENXIO, open(name, O_RDONLY));
}

CASE(a_device_can_be_opened_by_name)
{
	char name[40];
	struct stat status;
	int null = open("/dev/null", O_RDONLY), null_again;

	sprintf(name, "/dev/fd/%d", null);
	null_again = open(name, O_WRONLY);
	CHECK(write(null_again, "x", 1) == 1 && stat(name, &status) == 0 && status.st_rdev == 0x103);
}

CASE(names_of_closed_numbers_are_unknown)
{
	FAILS(ENOENT, open("/dev/fd/0777", O_RDONLY));
	FAILS(ENOENT, open("/dev/fd/999", O_RDONLY));
}

CASE(standard_input_can_be_opened_by_name)
{
	char name[40], text[10] = "";
	int ends[2], reader, writer;
	int status_of_child;

	CHECK(pipe(ends) == 0);
	sprintf(name, "/dev/fd/%d", ends[0]);
	reader = open(name, O_RDONLY | O_NONBLOCK);
	writer = ends[1];
	pid_t child = fork();

	if (child == 0) {
		dup2(reader, 0);
		int in = open("/dev/stdin", O_RDONLY);

		_exit(in < 0 || write(writer, "y", 1) != 1 || read(in, text, 1) != 1 ||
		      text[0] != 'y');
	}
	CHECK(waitpid(child, &status_of_child, 0) == child && status_of_child == 0);
}

CASE(a_name_may_lie_at_the_end_of_memory)
{
	char name[40];
	int reader = open("/dev/zero", O_RDONLY);

	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(page + 4096, 4096);
	sprintf(name, "/dev/fd/%d", reader);
	memcpy(page + 4096 - strlen(name) - 1, name, strlen(name) + 1);
	CHECK(open(page + 4096 - strlen(name) - 1, O_RDONLY) > 0);
	munmap(page, 4096);
	CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
}

/*
 * What a program finds that was executed with four numbers: closed, a pipe, the null device, an
 * eventfd.
 */
ROLE(executed)
{
	char **numbers = arguments + 1;
	unsigned long long value = 0;

	if (fcntl(atoi(numbers[0]), F_GETFD) != -1)
		return 1;
	if (write(atoi(numbers[1]), "kept", 4) != 4)
		return 2;
	if (write(atoi(numbers[2]), "x", 1) != 1)
		return 3;
	if (read(atoi(numbers[3]), &value, 8) != 8 || value != 5)
		return 4;
	/* 3 and 4 were closed by execve. */
	if (open("/etc/passwd", O_RDONLY) != 3 || open("/dev/null", O_RDONLY) != 4)
		return 5;
	return 0;
}

CASE(execve_keeps_what_is_not_to_be_closed)
{
	int ends[2], kept[2], status;
	char number[4][20], text[20];

	CHECK(pipe2(ends, O_CLOEXEC) == 0 && pipe(kept) == 0);
	int null = open("/dev/null", O_WRONLY), event = eventfd(5, 0);
	pid_t child = fork();

	if (child == 0) {
		sprintf(number[0], "%d", ends[1]);
		sprintf(number[1], "%d", kept[1]);
		sprintf(number[2], "%d", null);
		sprintf(number[3], "%d", event);
		execl("/proc/self/exe", "executed", number[0], number[1], number[2], number[3], NULL);
		_exit(99);
	}
	close(kept[1]);
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(read(kept[0], text, 20) == 4 && memcmp(text, "kept", 4) == 0 &&
	      read(kept[0], text, 20) == 0);
}

CASE(an_execve_that_fails_closes_nothing)
{
	int ends[2];
	char text[20];

	CHECK(pipe2(ends, O_CLOEXEC) == 0);
	FAILS(ENOENT, execl("/nowhere", "nowhere", NULL));
	FAILS(EACCES, execl("/etc/passwd", "passwd", NULL));
	CHECK(write(ends[1], "x", 1) == 1 && read(ends[0], text, 1) == 1);
	CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
}

CASE(no_number_is_above_the_limit)
{
	struct rlimit before, low;

	CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
	low = before;
	low.rlim_cur = 6;
	CHECK(setrlimit(RLIMIT_NOFILE, &low) == 0);
	CHECK(open("/dev/null", O_RDONLY) == 3 && open("/etc/passwd", O_RDONLY) == 4 && open("/dev/zero", O_RDONLY) == 5);
	FAILS(EMFILE, open("/dev/null", O_RDONLY));
	FAILS(EMFILE, open("/etc/passwd", O_RDONLY));
	FAILS(EMFILE, dup(3));
	FAILS(EMFILE, eventfd(0, 0));
	FAILS(EBADF, dup2(3, 6));
	FAILS(EINVAL, fcntl(3, F_DUPFD, 6));
	close(4);
	int ends[2];

	FAILS(EMFILE, pipe(ends));
	CHECK(open("/dev/null", O_RDONLY) == 4);
	CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0 && open("/dev/null", O_RDONLY) == 6);
	CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
}

CASE(children_and_programs_start_under_a_low_limit)
{
	CHECK(system("ulimit -n 40 && test \"$(ls -d /)\" = / && (echo x | cat) | grep -q x && "
		     "test $(sh -c 'ulimit -n') = 40") == 0);
	CHECK(system("ulimit -S -n 16 && (exec 3</dev/null 4</dev/null && test -d / && ls -d /) "
		     ">/dev/null && ulimit -S -n 40 && ls -d / >/dev/null") == 0);
}

CASE(descriptors_over_a_socket_take_the_lowest_numbers)
{
	char control[CMSG_SPACE(2 * sizeof(int))] = "", byte = 0;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part,
				  .msg_iovlen = 1,
				  .msg_control = control,
				  .msg_controllen = sizeof(control) };
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int pair[2], sent[2], got[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(open("/dev/zero", O_RDONLY) == 5);
	sent[0] = open("/etc/passwd", O_RDONLY);
	sent[1] = open("/dev/null", O_RDWR);
	CHECK(sent[0] == 6 && sent[1] == 7);
	*header = (struct cmsghdr){ CMSG_LEN(sizeof(sent)), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(header), sent, sizeof(sent));
	CHECK(sendmsg(pair[0], &message, 0) == 1);
	close(5);
	memset(control, 0, sizeof(control));
	CHECK(recvmsg(pair[1], &message, 0) == 1);
	memcpy(got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(got));
	CHECK(got[0] == 5 && got[1] == 8 && read(got[0], &byte, 1) == 1 &&
	      write(got[1], &byte, 1) == 1);
	CHECK(open("/dev/zero", O_RDONLY) == 9 && close(8) == 0 && open("/dev/zero", O_RDONLY) == 8);
	CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
}

CASE(a_range_is_marked_or_closed)
{
	int ends[2], right = 1;

	CHECK(open_devices() && pipe(ends) == 0);
	CHECK(syscall(SYS_close_range, 4, 6, 4) == 0 && fcntl(3, F_GETFD) == 0 &&
	      fcntl(4, F_GETFD) == 1);
	CHECK(fcntl(5, F_GETFD) == 1 && fcntl(6, F_GETFD) == 1 && fcntl(7, F_GETFD) == 0);
	CHECK(syscall(SYS_close_range, 5, 6, 0) == 0);
	FAILS(EBADF, fcntl(5, F_GETFD));
	FAILS(EBADF, fcntl(6, F_GETFD));
	CHECK(open("/etc/passwd", O_RDONLY) == 5 && open("/dev/null", O_RDONLY) == 6 && open("/dev/null", O_RDONLY) == 8);
	FAILS(EINVAL, syscall(SYS_close_range, 6, 5, 0));
	FAILS(EINVAL, syscall(SYS_close_range, 6, 7, 128));
	CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
	for (int fd = 3; fd < 2000; fd++)
		right &= fcntl(fd, F_GETFD) == -1;
	CHECK(right);
}

CASE(what_the_program_did_not_open_is_not_there)
{
	struct stat status;
	char byte;

	for (int fd = 3; fd < 2000; fd++) {
		FAILS(EBADF, fstat(fd, &status));
		FAILS(EBADF, fstatat(fd, "", &status, AT_EMPTY_PATH));
		FAILS(EBADF, fstatat(fd, "etc", &status, 0));
		FAILS(EBADF, openat(fd, "etc", O_RDONLY));
		FAILS(EBADF, read(fd, &byte, 1));
		FAILS(EBADF, lseek(fd, 0, SEEK_CUR));
		FAILS(EBADF, dup(fd));
		FAILS(EBADF, fchdir(fd));
		FAILS(EBADF, sendfile(1, fd, NULL, 1));
	}
	CHECK(fstatat(1000, "/etc", &status, 0) == 0);
	CHECK(fstatat(1001, "/etc", &status, 0) == 0);
}
