// SPDX-License-Identifier: MIT OR Apache-2.0
/* Asynchronous transfers: io_setup, io_submit, io_getevents and relatives. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "check.h"

/* What a context's name is the address of. */
struct ring {
	unsigned int id, count, head, tail, magic, compatible, incompatible, header;
	struct io_event events[];
};

static aio_context_t context;
static struct io_event events[4096];
static char bytes[8192], got[8192];

static long setup(unsigned int count, void *at)
{
	return syscall(SYS_io_setup, count, at);
}

static long destroy(aio_context_t which)
{
	return syscall(SYS_io_destroy, which);
}

static long submit(long count, struct iocb **blocks)
{
	return syscall(SYS_io_submit, context, count, blocks);
}

static long submit_one(struct iocb *block)
{
	return submit(1, &block);
}

static long get(long least, long most, struct timespec *timeout)
{
	return syscall(SYS_io_getevents, context, least, most, events, timeout);
}

static struct iocb make(int what, int fd, void *buffer, size_t count, long offset)
{
	return (struct iocb){
		.aio_data = 0x1234567890 + offset, .aio_lio_opcode = what, .aio_fildes = fd,
		.aio_buf = (uintptr_t)buffer, .aio_nbytes = count, .aio_offset = offset,
	};
}

/* How the only transfer that was asked for came out. */
static long outcome(struct iocb *block)
{
	CHECK(submit_one(block) == 1);
	CHECK(get(1, 64, NULL) == 1);
	CHECK(events[0].obj == (uintptr_t)block && events[0].data == block->aio_data);
	CHECK(events[0].res2 == 0);
	return events[0].res;
}

/* What submitting it fails with, or 0. */
static int refusal(struct iocb block)
{
	return submit_one(&block) == 1 ? 0 : errno;
}

static int file(void)
{
	int fd = open(".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	if (fd < 0)
		fd = memfd_create("file", MFD_CLOEXEC);
	CHECK(fd >= 0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = i * 31 + i / 251;
	return fd;
}

BEFORE_EACH
{
	context = 0;
	if (setup(32, &context))
		fail(__FILE__, __LINE__, "io_setup: %s", strerror(errno));
}

CASE(what_is_written_is_read)
{
	int fd = file();
	struct iocb write = make(IOCB_CMD_PWRITE, fd, bytes, 5000, 100);
	struct iocb read = make(IOCB_CMD_PREAD, fd, got, 8192, 50);

	CHECK(outcome(&write) == 5000);
	CHECK(outcome(&read) == 5050);
	for (int i = 0; i < 50; i++)
		CHECK(got[i] == 0);
	CHECK(memcmp(got + 50, bytes, 5000) == 0);
	read.aio_offset = 6000;
	CHECK(outcome(&read) == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == 0);
}

CASE(vectors)
{
	struct iovec out[] = { { bytes, 10 }, { bytes + 100, 20 } };
	struct iovec in[] = { { got, 15 }, { got + 50, 15 } };
	int fd = file();
	struct iocb write = make(IOCB_CMD_PWRITEV, fd, out, 2, 0);
	struct iocb read = make(IOCB_CMD_PREADV, fd, in, 2, 0);

	CHECK(outcome(&write) == 30 && outcome(&read) == 30);
	CHECK(memcmp(got, bytes, 10) == 0 && memcmp(got + 10, bytes + 100, 5) == 0);
	CHECK(memcmp(got + 50, bytes + 105, 15) == 0);
	write.aio_buf = 16;
	CHECK(refusal(write) == EFAULT);
	write = make(IOCB_CMD_PWRITEV, fd, out, 1025, 0);
	CHECK(refusal(write) == EINVAL);
	out[1].iov_base = at(16);
	write = make(IOCB_CMD_PWRITEV, fd, out + 1, 1, 0);
	CHECK(outcome(&write) == -EFAULT);
}

CASE(several_at_once)
{
	int fd = file();
	struct iocb blocks[10], *all[10];
	struct timespec none = { 0, 0 };
	uint64_t seen = 0;

	for (int i = 0; i < 10; i++) {
		blocks[i] = make(IOCB_CMD_PWRITE, fd, bytes + 100 * i, 100, 100 * i);
		all[i] = &blocks[i];
	}
	CHECK(submit(10, all) == 10);
	CHECK(get(4, 4, NULL) == 4);
	for (int i = 0; i < 4; i++)
		seen |= 1 << (events[i].data - 0x1234567890) / 100;
	CHECK(get(6, 64, NULL) == 6);
	for (int i = 0; i < 6; i++)
		seen |= 1 << (events[i].data - 0x1234567890) / 100;
	CHECK(seen == 0x3ff);
	CHECK(get(0, 64, &none) == 0 && get(1, 64, &none) == 0);
	CHECK(pread(fd, got, 2000, 0) == 1000 && memcmp(got, bytes, 1000) == 0);
	/* Up to one that is none. */
	blocks[3].aio_fildes = 900;
	CHECK(submit(10, all) == 3 && get(3, 64, NULL) == 3);
	FAILS(EBADF, submit(7, all + 3));
	all[2] = at(16);
	CHECK(submit(10, all) == 2 && get(2, 64, NULL) == 2);
	FAILS(EFAULT, submit(1, all + 2));
	CHECK(submit(0, all) == 0);
	FAILS(EINVAL, submit(-1, all));
	FAILS(EFAULT, submit(1, at(16)));
}

/* Programs look into the ring themselves. */
CASE(the_ring_shows_what_came_out)
{
	struct ring *ring = (struct ring *)context;
	int fd = file();
	struct iocb write = make(IOCB_CMD_PWRITE, fd, bytes, 100, 0);

	CHECK(ring->magic == 0xa10a10a1 && ring->header == 32 && ring->count >= 32);
	CHECK(ring->head == 0 && ring->tail == 0 && ring->incompatible == 0);
	CHECK(outcome(&write) == 100 && ring->head == 1 && ring->tail == 1);
	for (unsigned int i = 0; i < 2 * ring->count; i++) {
		unsigned int head = ring->head;

		write.aio_data = i;
		CHECK(submit_one(&write) == 1);
		while (*(volatile unsigned int *)&ring->tail == head)
			;
		CHECK(ring->tail == (head + 1) % ring->count);
		CHECK(ring->events[head].data == i && ring->events[head].res == 100);
		CHECK(ring->events[head].obj == (uintptr_t)&write);
		ring->head = (head + 1) % ring->count;
	}
}

CASE(there_is_room_for_as_many_as_were_asked_for)
{
	int fd = file(), count = 0;
	struct iocb write = make(IOCB_CMD_PWRITE, fd, bytes, 1, 0);
	aio_context_t first = context;

	context = 0;
	CHECK(setup(5, &context) == 0 && context != first);
	while (submit_one(&write) == 1)
		CHECK(++count < 4096);
	CHECK(errno == EAGAIN && count >= 5);
	CHECK(get(1, 1, NULL) == 1 && get(count - 1, count, NULL) == count - 1);
	CHECK(outcome(&write) == 1);
	CHECK(destroy(context) == 0 && destroy(first) == 0);
}

CASE(contexts)
{
	aio_context_t other = 0, name = context;

	FAILS(EINVAL, setup(1, &context));
	FAILS(EINVAL, setup(0, &other));
	FAILS(EINVAL, setup(-1, &other));
	FAILS(EFAULT, setup(1, at(16)));
	FAILS(EAGAIN, setup(1 << 20, &other));
	CHECK(other == 0 && setup(1, &other) == 0 && other != 0 && other != context);
	CHECK(destroy(other) == 0);
	FAILS(EINVAL, destroy(other));
	FAILS(EINVAL, destroy(0));
	CHECK(destroy(context) == 0);
	FAILS(EINVAL, get(0, 1, NULL));
	FAILS(EINVAL, submit(0, NULL));
	FAILS(EINVAL, destroy(name));
	/* Room comes back. */
	for (int i = 0; i < 100; i++) {
		other = 0;
		CHECK(setup(30000, &other) == 0 && destroy(other) == 0);
	}
}

CASE(a_child_has_none_of_them)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		FAILS(EINVAL, destroy(context));
		FAILS(EINVAL, get(0, 1, NULL));
		context = 0;
		CHECK(setup(30000, &context) == 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	for (int i = 0; i < 5; i++) {
		child = fork();
		if (child == 0) {
			context = 0;
			_exit(setup(40000, &context) != 0);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
}

CASE(what_is_refused)
{
	int fd = file(), closed = open("/dev/null", O_WRONLY), folder = open("/", O_RDONLY), ends[2];
	struct iocb block;

	CHECK(pipe(ends) == 0);
	CHECK(refusal(make(IOCB_CMD_PREAD, 900, got, 10, 0)) == EBADF);
	CHECK(refusal(make(77, 900, got, 10, 0)) == EBADF);
	CHECK(refusal(make(77, fd, got, 10, 0)) == EINVAL);
	CHECK(refusal(make(IOCB_CMD_NOOP, fd, got, 10, 0)) == EINVAL);
	CHECK(refusal(make(IOCB_CMD_PREAD, closed, got, 10, 0)) == EBADF);
	CHECK(refusal(make(IOCB_CMD_PREAD, ends[1], got, 10, 0)) == EBADF);
	CHECK(refusal(make(IOCB_CMD_PREAD, fd, got, -1, 0)) == EINVAL);
	CHECK(refusal(make(IOCB_CMD_PREAD, fd, got, 10, -1)) == EINVAL);
	CHECK(refusal(make(IOCB_CMD_PREAD, fd, at(-4096), 10, 0)) == EFAULT);
	CHECK(refusal(make(IOCB_CMD_PREAD, folder, got, 10, 0)) == EINVAL);
	CHECK(refusal(make(IOCB_CMD_FSYNC, ends[1], NULL, 0, 0)) == EINVAL);
	CHECK(refusal(make(IOCB_CMD_FSYNC, fd, NULL, 0, 1)) == EINVAL);
	block = make(IOCB_CMD_PREAD, fd, got, 10, 0);
	block.aio_reserved2 = 1;
	CHECK(refusal(block) == EINVAL);
	block.aio_reserved2 = 0;
	block.aio_rw_flags = 0x40000000;
	CHECK(refusal(block) == EOPNOTSUPP);
	block.aio_rw_flags = 0;
	block.aio_flags = IOCB_FLAG_RESFD;
	block.aio_resfd = 900;
	CHECK(refusal(block) == EBADF);
	block.aio_resfd = ends[0];
	CHECK(refusal(block) == EINVAL);
	block.aio_resfd = fd;
	CHECK(refusal(block) == EINVAL);
	CHECK(get(0, 64, &(struct timespec){ 0, 0 }) == 0);
	/* Bad memory is how it comes out. */
	CHECK(write(fd, bytes, 100) == 100);
	block = make(IOCB_CMD_PREAD, fd, at(16), 10, 0);
	CHECK(outcome(&block) == -EFAULT);
	FAILS(EINVAL, get(2, 1, NULL));
	FAILS(EINVAL, get(-1, 1, NULL));
	FAILS(EFAULT, get(0, 1, at(16)));
}

CASE(flags_of_a_transfer)
{
	int fd = file();
	struct iocb write = make(IOCB_CMD_PWRITE, fd, bytes, 100, 7), read;
	struct iovec vector = { got, 100 };

	write.aio_rw_flags = RWF_DSYNC;
	CHECK(outcome(&write) == 100);
	write.aio_rw_flags = RWF_APPEND;
	CHECK(outcome(&write) == 100);
	read = make(IOCB_CMD_PREADV, fd, &vector, 1, 107);
	read.aio_rw_flags = RWF_HIPRI;
	CHECK(outcome(&read) == 100 && memcmp(got, bytes, 100) == 0);
}

CASE(what_has_no_positions)
{
	int ends[2], event = eventfd(3, 0);
	struct iocb write, read;
	uint64_t value = 0;

	CHECK(pipe2(ends, O_NONBLOCK) == 0);
	write = make(IOCB_CMD_PWRITE, ends[1], bytes, 100, 50);
	read = make(IOCB_CMD_PREAD, ends[0], got, 200, 1000);
	CHECK(outcome(&write) == 100 && outcome(&read) == 100);
	read = make(IOCB_CMD_PREAD, event, &value, 8, 0);
	CHECK(outcome(&read) == 8 && value == 3);
}

CASE(an_eventfd_is_told)
{
	int fd = file(), event = eventfd(0, EFD_NONBLOCK);
	struct iocb write = make(IOCB_CMD_PWRITE, fd, bytes, 100, 0);
	uint64_t count;

	write.aio_flags = IOCB_FLAG_RESFD;
	write.aio_resfd = event;
	write.aio_key = 77;
	CHECK(outcome(&write) == 100 && outcome(&write) == 100 && write.aio_key == 0);
	CHECK(read(event, &count, 8) == 8 && count == 2);
}

CASE(files_are_written_back)
{
	int fd = file();
	struct iocb block = make(IOCB_CMD_FSYNC, fd, NULL, 0, 0);

	CHECK(outcome(&block) == 0);
	block = make(IOCB_CMD_FDSYNC, fd, NULL, 0, 0);
	CHECK(outcome(&block) == 0);
}

CASE(nothing_is_under_way_that_could_be_ended)
{
	struct iocb block = make(IOCB_CMD_PREAD, 0, got, 10, 0);

	FAILS(EINVAL, syscall(SYS_io_cancel, context, &block, events));
	FAILS(EFAULT, syscall(SYS_io_cancel, context, at(16), events));
	block.aio_key = 1;
	FAILS(EINVAL, syscall(SYS_io_cancel, context, &block, events));
}

static volatile int caught;

static void catch(int number)
{
	caught = number;
}

CASE(waiting_ends)
{
	struct timespec soon = { 0, 50000000 }, strange = { 0, 1100000000 }, before, after;
	const struct itimerval alarm = { { 0, 0 }, { 0, 50000 } };
	int fd = file();
	struct iocb write = make(IOCB_CMD_PWRITE, fd, bytes, 100, 0);

	clock_gettime(CLOCK_MONOTONIC, &before);
	CHECK(get(1, 10, &soon) == 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	after.tv_nsec += (after.tv_sec - before.tv_sec) * 1000000000;
	CHECK(after.tv_nsec - before.tv_nsec >= 50000000);
	CHECK(submit_one(&write) == 1 && get(2, 10, &soon) == 1);
	CHECK(submit_one(&write) == 1 && get(1, 10, &strange) == 1);
	CHECK(signal(SIGALRM, catch) != SIG_ERR && setitimer(ITIMER_REAL, &alarm, NULL) == 0);
	FAILS(EINTR, get(1, 10, NULL));
	CHECK(caught == SIGALRM);
}

/* However many signals come. */
CASE(a_signal_does_not_end_a_transfer)
{
	const struct itimerval often = { { 0, 1000 }, { 0, 1000 } };
	const struct itimerval never = { { 0, 0 }, { 0, 0 } };
	int fd = file();
	struct iocb write = make(IOCB_CMD_PWRITE, fd, bytes, 100, 0);

	caught = 0;
	CHECK(signal(SIGALRM, catch) != SIG_ERR && setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < 500 || !caught; i++)
		CHECK(outcome(&write) == 100);
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

CASE(a_mask_while_it_waits)
{
	struct { const sigset_t *mask; size_t size; } wanted;
	sigset_t all, none;
	struct timespec soon = { 0, 1000000 };

	sigfillset(&all);
	sigemptyset(&none);
	caught = 0;
	CHECK(signal(SIGUSR1, catch) != SIG_ERR && sigprocmask(SIG_BLOCK, &all, NULL) == 0);
	CHECK(raise(SIGUSR1) == 0);
	wanted.mask = &all;
	wanted.size = 8;
	CHECK(syscall(SYS_io_pgetevents, context, 1L, 10L, events, &soon, &wanted) == 0);
	CHECK(caught == 0);
	CHECK(syscall(SYS_io_pgetevents, context, 1L, 10L, events, &soon, NULL) == 0);
	CHECK(caught == 0);
	wanted.mask = &none;
	FAILS(EINTR, syscall(SYS_io_pgetevents, context, 1L, 10L, events, NULL, &wanted));
	CHECK(caught == SIGUSR1);
	wanted.size = 7;
	FAILS(EINVAL, syscall(SYS_io_pgetevents, context, 1L, 10L, events, &soon, &wanted));
	FAILS(EFAULT, syscall(SYS_io_pgetevents, context, 1L, 10L, events, &soon, at(16)));
}

static long result;
static int error;

static void *waiting(void *argument)
{
	static struct io_event own[4];

	result = syscall(SYS_io_getevents, context, 3L, 4L, own, argument);
	error = errno;
	return NULL;
}

CASE(another_thread_waits)
{
	int fd = file();
	struct iocb write = make(IOCB_CMD_PWRITE, fd, bytes, 100, 0);
	pthread_t thread;

	CHECK(pthread_create(&thread, NULL, waiting, NULL) == 0);
	for (int i = 0; i < 3; i++) {
		usleep(20000);
		CHECK(submit_one(&write) == 1);
	}
	CHECK(pthread_join(thread, NULL) == 0 && result == 3);
	CHECK(pthread_create(&thread, NULL, waiting, NULL) == 0);
	usleep(50000);
	CHECK(destroy(context) == 0);
	CHECK(pthread_join(thread, NULL) == 0 && result == -1 && error == EINVAL);
}
