// SPDX-License-Identifier: MIT OR Apache-2.0
/* eventfd: counters and semaphores, limits, waiting. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "waiting.h"

int main(void)
{
	uint64_t value = 0, big[2] = { 1, 2 };
	int fd, status;

	syscall(SYS_close_range, 3, ~0U, 0);
	fd = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);


	CHECK(fd == 3 && fcntl(fd, F_GETFD) == 1 && fcntl(fd, F_GETFL) == (O_RDWR | O_NONBLOCK));
	CHECK(ready(fd, POLLIN | POLLOUT, 0) == (POLLIN | POLLOUT) && read(fd, &value, 8) == 8 && value == 3);
	FAILS(EAGAIN, read(fd, &value, 8));
	CHECK(ready(fd, POLLIN | POLLOUT, 0) == POLLOUT);
	value = 5;
	CHECK(write(fd, &value, 8) == 8 && write(fd, &value, 8) == 8 && read(fd, &value, 8) == 8 && value == 10);
	CHECK(write(fd, big, 8) == 8 && read(fd, big, 16) == 8 && big[0] == 1 && big[1] == 2);
	FAILS(EINVAL, read(fd, &value, 7));
	FAILS(EINVAL, write(fd, &value, 7));
	FAILS(EINVAL, read(fd, &value, 0));
	value = UINT64_MAX;
	FAILS(EINVAL, write(fd, &value, 8));
	value = UINT64_MAX - 1;
	CHECK(write(fd, &value, 8) == 8 && ready(fd, POLLIN | POLLOUT, 0) == POLLIN);
	value = 1;
	FAILS(EAGAIN, write(fd, &value, 8));
	value = 0;
	CHECK(write(fd, &value, 8) == 8 && read(fd, &value, 8) == 8 && value == UINT64_MAX - 1);
	FAILS(EFAULT, write(fd, at(16), 8));
	FAILS(ESPIPE, pread(fd, &value, 8, 0));
	close(fd);

	fd = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
	CHECK(read(fd, &value, 8) == 8 && value == 1 && read(fd, &value, 8) == 8 && value == 1);
	FAILS(EAGAIN, read(fd, &value, 8));
	close(fd);
	FAILS(EINVAL, eventfd(0, 0x10));
	CHECK(syscall(SYS_eventfd, 7) == 3 && read(3, &value, 8) == 8 && value == 7);

	/* Somebody else writes. */
	pid_t child = fork();

	if (child == 0) {
		usleep(30000);
		value = 9;
		_exit(write(3, &value, 8) == 8 ? 0 : 1);
	}
	CHECK(read(3, &value, 8) == 8 && value == 9 && waitpid(child, &status, 0) == child && status == 0);
	value = UINT64_MAX - 1;
	CHECK(write(3, &value, 8) == 8);
	child = fork();
	if (child == 0) {
		usleep(30000);
		_exit(read(3, &value, 8) == 8 ? 0 : 1);
	}
	value = 4;
	CHECK(write(3, &value, 8) == 8 && waitpid(child, &status, 0) == child && status == 0);
	CHECK(read(3, &value, 8) == 8 && value == 4);
	struct sigaction action = { .sa_handler = note };

	sigaction(SIGALRM, &action, NULL);
	ualarm(30000, 30000);
	FAILS(EINTR, read(3, &value, 8));
	ualarm(0, 0);
	close(3);
	return finish();
}
