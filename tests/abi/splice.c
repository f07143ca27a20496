// SPDX-License-Identifier: MIT OR Apache-2.0
/* splice, tee, vmsplice and sendfile: pipes with each other, with files and with sockets. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "check.h"

#define PAGE 4096

static int a[2], b[2];
static char buffer[1 << 17] __attribute__((aligned(PAGE)));

static void open_pipes(void)
{
	if (pipe(a) || pipe(b))
		abort();
}

static void close_pipes(void)
{
	for (int i = 0; i < 2; i++) {
		close(a[i]);
		close(b[i]);
	}
}

static int available(int fd)
{
	int bytes = -1;

	ioctl(fd, FIONREAD, &bytes);
	return bytes;
}

/* Whether a read gives exactly this. */
static int reads(int fd, const char *text)
{
	ssize_t length = read(fd, buffer, sizeof(buffer));

	return length == (ssize_t)strlen(text) && !memcmp(buffer, text, length);
}

static int temporary(void)
{
	char name[] = "/tmp/splice-XXXXXX";
	int fd = mkstemp(name);

	unlink(name);
	return fd;
}

static void between_pipes(void)
{
	open_pipes();
	CHECK(write(a[1], "hello world", 11) == 11);
	CHECK(splice(a[0], NULL, b[1], NULL, 5, 0) == 5 && available(a[0]) == 6);
	CHECK(reads(b[0], "hello"));
	CHECK(tee(a[0], b[1], 100, 0) == 6 && available(a[0]) == 6 && reads(b[0], " world"));
	CHECK(tee(a[0], b[1], 3, SPLICE_F_NONBLOCK) == 3 && reads(b[0], " wo"));
	CHECK(splice(a[0], NULL, b[1], NULL, 100, SPLICE_F_MOVE | SPLICE_F_MORE) == 6 && available(a[0]) == 0);
	FAILS(EAGAIN, splice(a[0], NULL, b[1], NULL, 100, SPLICE_F_NONBLOCK));
	FAILS(EAGAIN, tee(a[0], b[1], 100, SPLICE_F_NONBLOCK));
	CHECK(reads(b[0], " world"));
	CHECK(splice(a[0], NULL, b[1], NULL, 0, 0) == 0 && tee(a[0], b[1], 0, 0) == 0);
	FAILS(EINVAL, splice(a[0], NULL, a[1], NULL, 1, SPLICE_F_NONBLOCK));
	FAILS(EINVAL, tee(a[0], a[1], 1, SPLICE_F_NONBLOCK));
	FAILS(EINVAL, splice(a[0], NULL, b[1], NULL, 1, 16));
	FAILS(EBADF, splice(a[1], NULL, b[1], NULL, 1, 0));
	FAILS(EBADF, splice(a[0], NULL, b[0], NULL, 1, 0));
	FAILS(EBADF, splice(a[0], NULL, 1000, NULL, 1, 0));
	FAILS(EBADF, tee(1000, b[1], 1, 0));
	/* The output has no room. */
	CHECK(fcntl(b[1], F_SETPIPE_SZ, PAGE) == PAGE && write(b[1], buffer, PAGE) == PAGE);
	CHECK(write(a[1], "stays", 5) == 5);
	FAILS(EAGAIN, splice(a[0], NULL, b[1], NULL, 5, SPLICE_F_NONBLOCK));
	CHECK(reads(a[0], "stays"));
	/* Nobody writes any more. */
	close(a[1]);
	CHECK(read(b[0], buffer, PAGE) == PAGE && splice(a[0], NULL, b[1], NULL, 5, 0) == 0);
	close_pipes();
}

static void with_files(void)
{
	int file = temporary();
	loff_t at = 3;
	off_t from = 2;

	open_pipes();
	CHECK(write(file, "0123456789", 10) == 10 && lseek(file, 1, SEEK_SET) == 1);
	CHECK(splice(file, NULL, a[1], NULL, 4, 0) == 4 && reads(a[0], "1234") && lseek(file, 0, SEEK_CUR) == 5);
	CHECK(splice(file, &at, a[1], NULL, 4, 0) == 4 && at == 7 && reads(a[0], "3456") && lseek(file, 0, SEEK_CUR) == 5);
	at = 20;
	CHECK(splice(file, &at, a[1], NULL, 4, 0) == 0 && at == 20);
	CHECK(write(a[1], "abc", 3) == 3 && splice(a[0], NULL, file, NULL, 100, 0) == 3 && lseek(file, 0, SEEK_CUR) == 8);
	at = 0;
	CHECK(write(a[1], "xy", 2) == 2 && splice(a[0], NULL, file, &at, 100, 0) == 2 && at == 2);
	CHECK(pread(file, buffer, 100, 0) == 10 && !memcmp(buffer, "xy234abc89", 10));
	FAILS(ESPIPE, splice(a[0], &at, file, NULL, 1, 0));
	FAILS(ESPIPE, splice(file, NULL, a[1], &at, 1, 0));
	CHECK(sendfile(a[1], file, &from, 3) == 3 && from == 5 && reads(a[0], "234"));
	CHECK(lseek(file, 4, SEEK_SET) == 4 && sendfile(a[1], file, NULL, 100) == 6 && reads(a[0], "4abc89"));
	FAILS(EINVAL, sendfile(file, a[0], NULL, 3));
	FAILS(EINVAL, tee(file, a[1], 3, 0));
	CHECK(fcntl(file, F_SETFL, O_APPEND) == 0 && write(a[1], "z", 1) == 1);
	FAILS(EINVAL, splice(a[0], NULL, file, NULL, 1, 0));
	CHECK(reads(a[0], "z"));
	FAILS(EINVAL, splice(file, NULL, file, NULL, 1, 0));
	close(file);

	/* More than a pipe holds, a pipe at a time. */
	file = temporary();
	for (int i = 0; i < (int)sizeof(buffer); i++)
		buffer[i] = i / 7;
	CHECK(write(file, buffer, sizeof(buffer)) == sizeof(buffer));
	at = 0;
	CHECK(splice(file, &at, a[1], NULL, sizeof(buffer), 0) == 65536 && available(a[0]) == 65536);
	FAILS(EAGAIN, splice(file, &at, a[1], NULL, 1, SPLICE_F_NONBLOCK));
	CHECK(lseek(file, 0, SEEK_SET) == 0 && splice(a[0], NULL, file, NULL, sizeof(buffer), 0) == 65536);
	memset(buffer, 0, 65536);
	CHECK(pread(file, buffer, 65536, 0) == 65536);
	int same = 1;
	for (int i = 0; i < 65536; i++)
		same &= buffer[i] == (char)(i / 7);
	CHECK(same);
	close(file);
	file = open("/dev/null", O_WRONLY);
	CHECK(write(a[1], buffer, 5000) == 5000 && splice(a[0], NULL, file, NULL, 5000, 0) == 5000 && available(a[0]) == 0);
	close(file);
	file = eventfd(1, 0);
	FAILS(EINVAL, tee(file, a[1], 8, 0));
	close(file);
	close_pipes();
}

static void *read_later(void *fd)
{
	usleep(50000);
	return (void *)read(*(int *)fd, buffer, 4);
}

static void with_sockets(void)
{
	int pair[2];
	pthread_t thread;
	void *got;

	open_pipes();
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	CHECK(write(a[1], "to socket", 9) == 9 && splice(a[0], NULL, pair[0], NULL, 100, 0) == 9 && reads(pair[1], "to socket"));
	CHECK(write(pair[1], "to pipe", 7) == 7 && splice(pair[0], NULL, a[1], NULL, 100, 0) == 7 && reads(a[0], "to pipe"));
	/* Nobody reads. */
	close(pair[1]);
	signal(SIGPIPE, SIG_IGN);
	CHECK(write(a[1], "stays", 5) == 5);
	FAILS(EPIPE, splice(a[0], NULL, pair[0], NULL, 1, 0));
	CHECK(reads(a[0], "stays"));
	close(pair[0]);
	CHECK(pthread_create(&thread, NULL, read_later, &b[0]) == 0);
	CHECK(write(a[1], "late", 4) == 4 && splice(a[0], NULL, b[1], NULL, 4, 0) == 4 && pthread_join(thread, &got) == 0 && got == (void *)4);
	close_pipes();
}

/* What the output does not take stays in the pipe. */
static void with_a_named_pipe(void)
{
	char name[] = "/tmp/splice-XXXXXX";
	int fd;

	open_pipes();
	CHECK(mkdtemp(name) && chdir(name) == 0 && mkfifo("fifo", 0600) == 0);
	fd = open("fifo", O_RDWR | O_NONBLOCK);
	CHECK(fd >= 0 && write(a[1], "through", 7) == 7);
	CHECK(splice(a[0], NULL, fd, NULL, 7, 0) == 7 && splice(fd, NULL, a[1], NULL, 100, 0) == 7 && reads(a[0], "through"));
	while (write(fd, buffer, PAGE) > 0)
		;
	CHECK(write(a[1], "stays ", 6) == 6);
	FAILS(EAGAIN, splice(a[0], NULL, fd, NULL, 6, SPLICE_F_NONBLOCK));
	CHECK(write(a[1], "here", 4) == 4 && reads(a[0], "stays here"));
	CHECK(unlink("fifo") == 0 && chdir("/") == 0 && rmdir(name) == 0);
	close(fd);
	close_pipes();
}

static void with_memory(void)
{
	struct iovec vector[2] = { { "scattered ", 10 }, { "words", 5 } };
	struct iovec all = { buffer, sizeof(buffer) };
	int event = eventfd(0, 0);

	open_pipes();
	CHECK(vmsplice(a[1], vector, 2, 0) == 15 && reads(a[0], "scattered words"));
	CHECK(vmsplice(a[1], &all, 1, 0) == 65536 && available(a[0]) == 65536);
	FAILS(EAGAIN, vmsplice(a[1], vector, 1, SPLICE_F_NONBLOCK));
	all.iov_len = 65536;
	CHECK(vmsplice(a[0], &all, 1, 0) == 65536 && available(a[0]) == 0);
	FAILS(EBADF, vmsplice(event, vector, 1, 0));
	FAILS(EBADF, vmsplice(1000, vector, 1, 0));
	FAILS(EINVAL, vmsplice(a[1], vector, 1, 32));
	FAILS(EFAULT, vmsplice(a[1], (void *)1, 1, 0));
	CHECK(vmsplice(a[1], vector, 0, 0) == 0);
	close(event);
	close_pipes();
}

int main(void)
{
	between_pipes();
	with_files();
	with_sockets();
	with_a_named_pipe();
	with_memory();
	return finish();
}
