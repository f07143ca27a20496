// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * splice, tee, vmsplice and sendfile: pipes with each other, with files, with sockets and with
 * memory.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/uio.h>

#include "check.h"

#define PAGE 4096

static int a[2], b[2];
static char buffer[1 << 17] __attribute__((aligned(PAGE)));

/* How many bytes are in a pipe, or -1. */
static int available(int fd)
{
	int bytes = -1;

	ioctl(fd, FIONREAD, &bytes);
	return bytes;
}

/* Tells whether a read gives exactly this. */
static int reads(int fd, const char *text)
{
	ssize_t length = read(fd, buffer, sizeof(buffer));

	return length == (ssize_t)strlen(text) && !memcmp(buffer, text, length);
}

/* Makes a file without a name. */
static int temporary(void)
{
	char name[] = "/tmp/splice-XXXXXX";
	int fd = mkstemp(name);

	unlink(name);
	return fd;
}

BEFORE_EACH
{
	CHECK(pipe(a) == 0 && pipe(b) == 0);
}

CASE(bytes_go_from_pipe_to_pipe)
{
	CHECK(write(a[1], "hello world", 11) == 11);
	CHECK(splice(a[0], NULL, b[1], NULL, 5, 0) == 5 && available(a[0]) == 6);
	CHECK(reads(b[0], "hello"));
	CHECK(splice(a[0], NULL, b[1], NULL, 100, SPLICE_F_MOVE | SPLICE_F_MORE) == 6 &&
	      available(a[0]) == 0 && reads(b[0], " world"));
}

CASE(tee_leaves_the_bytes_where_they_are)
{
	CHECK(write(a[1], " world", 6) == 6);
	CHECK(tee(a[0], b[1], 100, 0) == 6 && available(a[0]) == 6 && reads(b[0], " world"));
	CHECK(tee(a[0], b[1], 3, SPLICE_F_NONBLOCK) == 3 && reads(b[0], " wo"));
	CHECK(splice(a[0], NULL, b[1], NULL, 100, SPLICE_F_MOVE | SPLICE_F_MORE) == 6 &&
	      available(a[0]) == 0);
	CHECK(reads(b[0], " world"));
}

CASE(an_empty_pipe_gives_nothing)
{
	FAILS(EAGAIN, splice(a[0], NULL, b[1], NULL, 100, SPLICE_F_NONBLOCK));
	FAILS(EAGAIN, tee(a[0], b[1], 100, SPLICE_F_NONBLOCK));
	CHECK(splice(a[0], NULL, b[1], NULL, 0, 0) == 0 && tee(a[0], b[1], 0, 0) == 0);
}

CASE(bad_splices_of_pipes_are_refused)
{
	FAILS(EINVAL, splice(a[0], NULL, a[1], NULL, 1, SPLICE_F_NONBLOCK));
	FAILS(EINVAL, tee(a[0], a[1], 1, SPLICE_F_NONBLOCK));
	FAILS(EINVAL, splice(a[0], NULL, b[1], NULL, 1, 16));
	FAILS(EBADF, splice(a[1], NULL, b[1], NULL, 1, 0));
	FAILS(EBADF, splice(a[0], NULL, b[0], NULL, 1, 0));
	FAILS(EBADF, splice(a[0], NULL, 1000, NULL, 1, 0));
	FAILS(EBADF, tee(1000, b[1], 1, 0));
}

CASE(what_has_no_room_stays)
{
	CHECK(fcntl(b[1], F_SETPIPE_SZ, PAGE) == PAGE && write(b[1], buffer, PAGE) == PAGE);
	CHECK(write(a[1], "stays", 5) == 5);
	FAILS(EAGAIN, splice(a[0], NULL, b[1], NULL, 5, SPLICE_F_NONBLOCK));
	CHECK(reads(a[0], "stays"));
}

CASE(what_is_not_asked_for_of_a_packet_stays)
{
	int packets[2], file = temporary();

	CHECK(pipe2(packets, O_DIRECT) == 0);
	CHECK(write(packets[1], "first", 5) == 5 && write(packets[1], "second", 6) == 6);
	CHECK(splice(packets[0], NULL, b[1], NULL, 3, 0) == 3 && reads(b[0], "fir"));
	CHECK(available(packets[0]) == 8 && reads(packets[0], "st"));
	CHECK(splice(packets[0], NULL, file, NULL, 2, 0) == 2 && reads(packets[0], "cond"));
	CHECK(pread(file, buffer, 100, 0) == 2 && !memcmp(buffer, "se", 2));
}

CASE(a_pipe_without_writers_has_ended)
{
	CHECK(write(b[1], buffer, PAGE) == PAGE);
	close(a[1]);
	CHECK(read(b[0], buffer, PAGE) == PAGE && splice(a[0], NULL, b[1], NULL, 5, 0) == 0);
}

/* The call uses the position of the file, or another one. */
CASE(bytes_go_between_a_file_and_a_pipe)
{
	int file = temporary();
	loff_t at = 3;

	CHECK(write(file, "0123456789", 10) == 10 && lseek(file, 1, SEEK_SET) == 1);
	CHECK(splice(file, NULL, a[1], NULL, 4, 0) == 4 && reads(a[0], "1234") &&
	      lseek(file, 0, SEEK_CUR) == 5);
	CHECK(splice(file, &at, a[1], NULL, 4, 0) == 4 && at == 7 && reads(a[0], "3456") &&
	      lseek(file, 0, SEEK_CUR) == 5);
	at = 20;
	CHECK(splice(file, &at, a[1], NULL, 4, 0) == 0 && at == 20);
	CHECK(write(a[1], "abc", 3) == 3 && splice(a[0], NULL, file, NULL, 100, 0) == 3 &&
	      lseek(file, 0, SEEK_CUR) == 8);
	at = 0;
	CHECK(write(a[1], "xy", 2) == 2 && splice(a[0], NULL, file, &at, 100, 0) == 2 && at == 2);
	CHECK(pread(file, buffer, 100, 0) == 10 && !memcmp(buffer, "xy234abc89", 10));
}

CASE(a_pipe_has_no_position)
{
	int file = temporary();
	loff_t at = 3;

	FAILS(ESPIPE, splice(a[0], &at, file, NULL, 1, 0));
	FAILS(ESPIPE, splice(file, NULL, a[1], &at, 1, 0));
}

CASE(sendfile_fills_a_pipe)
{
	int file = temporary();
	off_t from = 2;

	CHECK(pwrite(file, "xy234abc89", 10, 0) == 10);
	CHECK(sendfile(a[1], file, &from, 3) == 3 && from == 5 && reads(a[0], "234"));
	CHECK(lseek(file, 4, SEEK_SET) == 4 && sendfile(a[1], file, NULL, 100) == 6 &&
	      reads(a[0], "4abc89"));
}

CASE(bad_splices_of_files_are_refused)
{
	int file = temporary();

	FAILS(EINVAL, sendfile(file, a[0], NULL, 3));
	FAILS(EINVAL, tee(file, a[1], 3, 0));
	CHECK(fcntl(file, F_SETFL, O_APPEND) == 0 && write(a[1], "z", 1) == 1);
	FAILS(EINVAL, splice(a[0], NULL, file, NULL, 1, 0));
	CHECK(reads(a[0], "z"));
	FAILS(EINVAL, splice(file, NULL, file, NULL, 1, 0));
}

/* The file has more than the pipe holds. */
CASE(a_splice_takes_a_pipe_at_a_time)
{
	int file = temporary();
	loff_t at = 3;

	for (int i = 0; i < (int)sizeof(buffer); i++)
		buffer[i] = i / 7;
	CHECK(write(file, buffer, sizeof(buffer)) == sizeof(buffer));
	at = 0;
	CHECK(splice(file, &at, a[1], NULL, sizeof(buffer), 0) == 65536 &&
	      available(a[0]) == 65536);
	FAILS(EAGAIN, splice(file, &at, a[1], NULL, 1, SPLICE_F_NONBLOCK));
	CHECK(lseek(file, 0, SEEK_SET) == 0 &&
	      splice(a[0], NULL, file, NULL, sizeof(buffer), 0) == 65536);
	memset(buffer, 0, 65536);
	CHECK(pread(file, buffer, 65536, 0) == 65536);
	int same = 1;
	for (int i = 0; i < 65536; i++)
		same &= buffer[i] == (char)(i / 7);
	CHECK(same);
}

CASE(the_null_device_takes_all)
{
	int file = open("/dev/null", O_WRONLY);

	CHECK(write(a[1], buffer, 5000) == 5000 &&
	      splice(a[0], NULL, file, NULL, 5000, 0) == 5000 && available(a[0]) == 0);
}

CASE(an_eventfd_has_no_bytes_to_tee)
{
	int file = eventfd(1, 0);

	FAILS(EINVAL, tee(file, a[1], 8, 0));
}

/* No splice waits for a pipe if the other end never takes or gives bytes, or takes a count. */
CASE(what_is_no_stream_is_refused_at_once)
{
	const int files[] = { eventfd(1, 0), timerfd_create(CLOCK_MONOTONIC, 0), epoll_create1(0),
			      inotify_init1(0) };
	uint64_t counted = 0;

	for (int i = 0; i < 4; i++) {
		PART("%d", i);
		/* Nobody writes to an inotify. */
		FAILS(i == 3 ? EBADF : EINVAL, splice(a[0], NULL, files[i], NULL, 8, 0));
		FAILS(EINVAL, splice(files[i], NULL, a[1], NULL, 8, 0));
	}
	CHECK(read(files[0], &counted, 8) == 8 && counted == 1);
	FAILS(EINVAL, splice(open("/", O_RDONLY), NULL, a[1], NULL, 8, 0));
	FAILS(EINVAL, sendfile(a[1], open("/", O_RDONLY), NULL, 8));
}

static void *read_later(void *fd)
{
	usleep(50000);
	return (void *)read(*(int *)fd, buffer, 4);
}

CASE(bytes_go_between_a_socket_and_a_pipe)
{
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(write(a[1], "to socket", 9) == 9 && splice(a[0], NULL, pair[0], NULL, 100, 0) == 9 &&
	      reads(pair[1], "to socket"));
	CHECK(write(pair[1], "to pipe", 7) == 7 && splice(pair[0], NULL, a[1], NULL, 100, 0) == 7 &&
	      reads(a[0], "to pipe"));
}

CASE(what_nobody_reads_stays)
{
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	close(pair[1]);
	signal(SIGPIPE, SIG_IGN);
	CHECK(write(a[1], "stays", 5) == 5);
	FAILS(EPIPE, splice(a[0], NULL, pair[0], NULL, 1, 0));
	CHECK(reads(a[0], "stays"));
}

CASE(a_splice_goes_where_a_reader_waits)
{
	pthread_t thread;
	void *got;

	CHECK(pthread_create(&thread, NULL, read_later, &b[0]) == 0);
	CHECK(write(a[1], "late", 4) == 4 && splice(a[0], NULL, b[1], NULL, 4, 0) == 4 &&
	      pthread_join(thread, &got) == 0 && got == (void *)4);
}

CASE(what_a_named_pipe_does_not_take_stays)
{
	char name[] = "/tmp/splice-XXXXXX";
	int fd;

	CHECK(mkdtemp(name) && chdir(name) == 0 && mkfifo("fifo", 0600) == 0);
	fd = open("fifo", O_RDWR | O_NONBLOCK);
	CHECK(fd >= 0 && write(a[1], "through", 7) == 7);
	CHECK(splice(a[0], NULL, fd, NULL, 7, 0) == 7 &&
	      splice(fd, NULL, a[1], NULL, 100, 0) == 7 && reads(a[0], "through"));
	while (write(fd, buffer, PAGE) > 0)
		;
	CHECK(write(a[1], "stays ", 6) == 6);
	FAILS(EAGAIN, splice(a[0], NULL, fd, NULL, 6, SPLICE_F_NONBLOCK));
	CHECK(write(a[1], "here", 4) == 4 && reads(a[0], "stays here"));
	CHECK(unlink("fifo") == 0 && chdir("/") == 0 && rmdir(name) == 0);
}

CASE(vmsplice_gathers_memory)
{
	struct iovec vector[2] = { { "scattered ", 10 }, { "words", 5 } };

	CHECK(vmsplice(a[1], vector, 2, 0) == 15 && reads(a[0], "scattered words"));
}

CASE(vmsplice_fills_and_empties_a_pipe)
{
	struct iovec vector[2] = { { "scattered ", 10 }, { "words", 5 } };
	struct iovec all = { buffer, sizeof(buffer) };

	CHECK(vmsplice(a[1], &all, 1, 0) == 65536 && available(a[0]) == 65536);
	FAILS(EAGAIN, vmsplice(a[1], vector, 1, SPLICE_F_NONBLOCK));
	all.iov_len = 65536;
	CHECK(vmsplice(a[0], &all, 1, 0) == 65536 && available(a[0]) == 0);
}

CASE(bad_vmsplices_are_refused)
{
	struct iovec vector[2] = { { "scattered ", 10 }, { "words", 5 } };
	int event = eventfd(0, 0);

	FAILS(EBADF, vmsplice(event, vector, 1, 0));
	FAILS(EBADF, vmsplice(1000, vector, 1, 0));
	FAILS(EINVAL, vmsplice(a[1], vector, 1, 32));
	FAILS(EFAULT, vmsplice(a[1], (void *)1, 1, 0));
	CHECK(vmsplice(a[1], vector, 0, 0) == 0);
}

static volatile int copied, got;

static void *copy(void *unused)
{
	(void)unused;
	copied = tee(a[0], b[1], 1, 0);
	return NULL;
}

static void *get(void *unused)
{
	char byte;

	(void)unused;
	got = read(a[0], &byte, 1);
	return NULL;
}

/* The reader may be faster: then tee finds nothing, or waits for another byte. */
CASE(tee_leaves_the_bytes_to_who_waits_for_them)
{
	pthread_t threads[2];

	copied = -1;
	got = 0;
	CHECK(pthread_create(&threads[0], NULL, copy, NULL) == 0);
	usleep(30000);
	CHECK(pthread_create(&threads[1], NULL, get, NULL) == 0);
	usleep(30000);
	CHECK(write(a[1], "x", 1) == 1);
	for (int i = 0; i < 5000 && !got; i++)
		usleep(1000);
	CHECK(got == 1);
	if (copied < 0)
		CHECK(write(a[1], "y", 1) == 1);
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	CHECK(copied >= 0);
}
