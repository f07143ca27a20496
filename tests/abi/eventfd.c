// SPDX-License-Identifier: MIT OR Apache-2.0
/* eventfd: counters and semaphores, limits and waiting. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "waiting.h"

BEFORE_EACH
{
	syscall(SYS_close_range, 3, ~0U, 0);
}

CASE(a_new_counter_has_its_value_and_flags)
{
	uint64_t value = 0;
	int fd = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);

	CHECK(fd == 3 && fcntl(fd, F_GETFD) == 1 && fcntl(fd, F_GETFL) == (O_RDWR | O_NONBLOCK));
	CHECK(ready(fd, POLLIN | POLLOUT, 0) == (POLLIN | POLLOUT) && read(fd, &value, 8) == 8 &&
	      value == 3);
	FAILS(EAGAIN, read(fd, &value, 8));
	CHECK(ready(fd, POLLIN | POLLOUT, 0) == POLLOUT);
}

CASE(writes_add_up)
{
	uint64_t value = 0;
	int fd = eventfd(0, EFD_NONBLOCK);

	value = 5;
	CHECK(write(fd, &value, 8) == 8 && write(fd, &value, 8) == 8 && read(fd, &value, 8) == 8 &&
	      value == 10);
}

CASE(eight_bytes_are_read_and_written)
{
	uint64_t value = 0;
	uint64_t big[2] = { 1, 2 };
	int fd = eventfd(0, EFD_NONBLOCK);

	CHECK(write(fd, big, 8) == 8 && read(fd, big, 16) == 8 && big[0] == 1 && big[1] == 2);
	FAILS(EINVAL, read(fd, &value, 7));
	FAILS(EINVAL, write(fd, &value, 7));
	FAILS(EINVAL, read(fd, &value, 0));
}

CASE(the_counter_has_a_most)
{
	uint64_t value = 0;
	int fd = eventfd(0, EFD_NONBLOCK);

	value = UINT64_MAX;
	FAILS(EINVAL, write(fd, &value, 8));
	value = UINT64_MAX - 1;
	CHECK(write(fd, &value, 8) == 8 && ready(fd, POLLIN | POLLOUT, 0) == POLLIN);
	value = 1;
	FAILS(EAGAIN, write(fd, &value, 8));
	value = 0;
	CHECK(write(fd, &value, 8) == 8 && read(fd, &value, 8) == 8 && value == UINT64_MAX - 1);
}

CASE(bad_addresses_and_positions_are_refused)
{
	uint64_t value = 0;
	int fd = eventfd(0, EFD_NONBLOCK);

	FAILS(EFAULT, write(fd, at(16), 8));
	FAILS(ESPIPE, pread(fd, &value, 8, 0));
}

CASE(a_semaphore_gives_one_at_a_time)
{
	uint64_t value = 0;
	int fd = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);

	CHECK(read(fd, &value, 8) == 8 && value == 1 && read(fd, &value, 8) == 8 && value == 1);
	FAILS(EAGAIN, read(fd, &value, 8));
}

CASE(unknown_flags_are_refused)
{
	FAILS(EINVAL, eventfd(0, 0x10));
}

CASE(the_old_call_makes_a_counter)
{
	uint64_t value = 0;

	CHECK(syscall(SYS_eventfd, 7) == 3 && read(3, &value, 8) == 8 && value == 7);
}

CASE(a_reader_waits_for_a_writer)
{
	uint64_t value = 0;
	int status;

	CHECK(eventfd(0, 0) == 3);
	pid_t child = fork();

	if (child == 0) {
		usleep(30000);
		value = 9;
		_exit(write(3, &value, 8) == 8 ? 0 : 1);
	}
	CHECK(read(3, &value, 8) == 8 && value == 9 && waitpid(child, &status, 0) == child &&
	      status == 0);
}

CASE(a_writer_waits_for_a_reader)
{
	uint64_t value = 0;
	int status;

	CHECK(eventfd(0, 0) == 3);
	value = UINT64_MAX - 1;
	CHECK(write(3, &value, 8) == 8);
	pid_t child = fork();

	if (child == 0) {
		usleep(30000);
		_exit(read(3, &value, 8) == 8 ? 0 : 1);
	}
	value = 4;
	CHECK(write(3, &value, 8) == 8 && waitpid(child, &status, 0) == child && status == 0);
	CHECK(read(3, &value, 8) == 8 && value == 4);
}

CASE(a_signal_ends_a_wait)
{
	uint64_t value = 0;

	CHECK(eventfd(0, 0) == 3);
	struct sigaction action = { .sa_handler = note };

	sigaction(SIGALRM, &action, NULL);
	ualarm(30000, 30000);
	FAILS(EINTR, read(3, &value, 8));
	ualarm(0, 0);
}
