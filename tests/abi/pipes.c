// SPDX-License-Identifier: MIT OR Apache-2.0
/* Pipes: what is full and what is empty, atomic writes, ends that close, and signals. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <linux/magic.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"
#include "waiting.h"

static int ends[2];

/* How many bytes are in the pipe, or -1. */
static int readable(void)
{
	int bytes = -1;

	return ioctl(ends[0], FIONREAD, &bytes) == 0 ? bytes : -1;
}

/* Makes the pipe anew. */
static void reopen(int flags)
{
	close(ends[0]);
	close(ends[1]);
	CHECK(pipe2(ends, flags) == 0);
}

BEFORE_EACH
{
	caught = 0;
	CHECK(pipe(ends) == 0);
}

CASE(bytes_come_in_their_order)
{
	char text[100];

	CHECK(write(ends[1], "one", 3) == 3 && write(ends[1], "two", 3) == 3 && readable() == 6);
	CHECK(read(ends[0], text, 4) == 4 && memcmp(text, "onet", 4) == 0 &&
	      read(ends[0], text, 100) == 2);
	CHECK(read(ends[0], text, 0) == 0 && write(ends[1], text, 0) == 0 && readable() == 0);
}

CASE(the_wrong_end_is_refused)
{
	char text[100];

	FAILS(EBADF, read(ends[1], text, 1));
	FAILS(EBADF, write(ends[0], text, 1));
	FAILS(EBADF, readahead(ends[1], 0, 1));
	FAILS(EINVAL, readahead(ends[0], 0, 1));
}

CASE(a_pipe_has_no_position_and_no_contents)
{
	char text[100];

	FAILS(ESPIPE, lseek(ends[0], 0, SEEK_CUR));
	FAILS(ESPIPE, pread(ends[0], text, 1, 0));
	FAILS(ESPIPE, pwrite(ends[1], text, 1, 0));
	FAILS(EINVAL, fsync(ends[1]));
	FAILS(EINVAL, ftruncate(ends[1], 0));
	FAILS(ENOTDIR, fchdir(ends[0]));
	FAILS(ENODEV, mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, ends[0], 0) == MAP_FAILED ? -1 : 0);
}

CASE(bad_addresses_lose_no_bytes)
{
	char text[100];

	FAILS(EFAULT, read(ends[0], at(-4096), 1));
	FAILS(EFAULT, write(ends[1], at(16), 1));
	CHECK(write(ends[1], "x", 1) == 1);
	FAILS(EFAULT, read(ends[0], at(16), 1));
	CHECK(readable() == 1 && read(ends[0], text, 1) == 1);
}

CASE(bad_pipes_are_not_made)
{
	FAILS(EFAULT, pipe(at(16)));
	FAILS(EINVAL, pipe2(ends, 1));
}

CASE(a_pipe_has_a_status)
{
	struct stat status;

	CHECK(fstat(ends[0], &status) == 0 && S_ISFIFO(status.st_mode) &&
	      (status.st_mode & 0777) == 0600);
	CHECK(status.st_size == 0 && status.st_nlink == 1 && status.st_uid == geteuid());
}

CASE(a_pipe_and_an_eventfd_are_of_file_systems)
{
	struct statfs of;
	int event = eventfd(0, 0);

	CHECK(fstatfs(ends[0], &of) == 0 && of.f_type == PIPEFS_MAGIC);
	CHECK(of.f_bsize == 4096 && of.f_frsize == 4096 && of.f_namelen == 255);
	SAY("%lx %lx %lx %lx %lx", of.f_blocks, of.f_bfree, of.f_files, of.f_ffree, of.f_flags);
	CHECK(event >= 0 && fstatfs(event, &of) == 0 && of.f_type == ANON_INODE_FS_MAGIC);
	CHECK(of.f_bsize == 4096 && of.f_blocks == 0 && of.f_namelen == 255);
	SAY("%lx", of.f_flags);
	FAILS(EFAULT, fstatfs(ends[1], at(16)));
	close(event);
	FAILS(EBADF, fstatfs(event, &of));
}

CASE(vectors_are_written_and_read)
{
	char a[5] = "", b[5] = "", c[5] = "";
	struct iovec out[3] = { { "abc", 3 }, { "", 0 }, { "defgh", 5 } };
	struct iovec in[3] = { { a, 2 }, { b, 4 }, { c, 4 } };

	CHECK(writev(ends[1], out, 3) == 8 && readv(ends[0], in, 3) == 8);
	CHECK(memcmp(a, "ab", 2) == 0 && memcmp(b, "cdef", 4) == 0 && memcmp(c, "gh", 2) == 0);
}

/* The bytes before the bad address may be in the pipe. */
CASE(a_bad_vector_may_be_written_in_part)
{
	char a[5] = "";
	struct iovec out[3] = { { "abc", 3 }, { "", 0 }, { "defgh", 5 } };

	out[1].iov_base = at(16);
	out[1].iov_len = 1;
	CHECK(writev(ends[1], out, 3) != 8);
	while (readable() > 0 && read(ends[0], a, 5) > 0)
		;
}

CASE(a_pipe_is_full_with_64_kib)
{
	static char block[65536];

	reopen(O_NONBLOCK);
	CHECK(fcntl(ends[0], F_GETPIPE_SZ) == 65536);
	CHECK(ready(ends[0], POLLIN | POLLOUT, 0) == 0 &&
	      ready(ends[1], POLLIN | POLLOUT, 0) == POLLOUT);
	FAILS(EAGAIN, read(ends[0], block, 1));
	CHECK(write(ends[1], block, 65536) == 65536);
	FAILS(EAGAIN, write(ends[1], block, 1));
	CHECK(ready(ends[1], POLLOUT, 0) == 0 && ready(ends[0], POLLIN, 0) == POLLIN &&
	      readable() == 65536);
	CHECK(read(ends[0], block, 4095) == 4095);
	FAILS(EAGAIN, write(ends[1], block, 1));
	CHECK(ready(ends[1], POLLOUT, 0) == 0 && read(ends[0], block, 1) == 1 &&
	      ready(ends[1], POLLOUT, 0) == POLLOUT);
	CHECK(write(ends[1], block, 5000) == 4096);
	CHECK(read(ends[0], block, 65536) == 65536 && readable() == 0);
}

/* A write goes into the last page as long as it fits. */
CASE(short_writes_share_pages)
{
	static char block[65536];
	int total, got;

	reopen(O_NONBLOCK);
	for (total = 0; write(ends[1], block, 100) == 100;)
		total += 100;
	CHECK(total == 16 * 4000 && errno == EAGAIN);
	for (total = 0; (got = read(ends[0], block, 1000)) > 0;)
		total += got;
	CHECK(total == 16 * 4000);
}

CASE(only_writes_of_more_than_pipe_buf_are_split)
{
	static char block[65536];
	int total;

	reopen(O_NONBLOCK);
	for (total = 0; write(ends[1], block, PIPE_BUF) == PIPE_BUF;)
		total += PIPE_BUF;
	CHECK(total == 65536);
	CHECK(read(ends[0], block, 2 * 4096) == 2 * 4096 && write(ends[1], block, 12288) == 8192);
	FAILS(EAGAIN, write(ends[1], block, 12288));
}

CASE(the_size_of_a_pipe_can_be_set)
{
	static char block[32768];

	reopen(O_NONBLOCK);
	CHECK(fcntl(ends[1], F_SETPIPE_SZ, 1) == 4096 && fcntl(ends[0], F_GETPIPE_SZ) == 4096);
	CHECK(write(ends[1], block, 8192) == 4096);
	CHECK(fcntl(ends[1], F_SETPIPE_SZ, 5000) == 8192 && write(ends[1], block, 8192) == 4096);
	FAILS(EBUSY, fcntl(ends[1], F_SETPIPE_SZ, 4096));
	FAILS(EBUSY, fcntl(ends[1], F_SETPIPE_SZ, 0));
	FAILS(EINVAL, fcntl(ends[1], F_SETPIPE_SZ, -1));
	CHECK(read(ends[0], block, 32768) == 8192 &&
	      fcntl(ends[0], F_SETPIPE_SZ, 1 << 20) == 1 << 20);
	int total = 0;

	while (write(ends[1], block, 32768) == 32768)
		total += 32768;
	CHECK(total == 1 << 20 && readable() == 1 << 20);
}

CASE(packets_are_read_one_by_one)
{
	char text[100];

	reopen(O_DIRECT | O_NONBLOCK);
	CHECK((fcntl(ends[1], F_GETFL) & O_DIRECT) && write(ends[1], "first", 5) == 5 &&
	      write(ends[1], "second", 6) == 6);
	CHECK(read(ends[0], text, 100) == 5 && read(ends[0], text, 3) == 3 &&
	      memcmp(text, "sec", 3) == 0);
	FAILS(EAGAIN, read(ends[0], text, 3));
}

CASE(a_packet_takes_a_page)
{
	reopen(O_DIRECT | O_NONBLOCK);
	for (int i = 0; i < 16; i++)
		CHECK(write(ends[1], "x", 1) == 1);
	FAILS(EAGAIN, write(ends[1], "x", 1));
}

CASE(a_pipe_without_writers_has_ended)
{
	char text[10];

	CHECK(write(ends[1], "last", 4) == 4 && close(ends[1]) == 0);
	CHECK(ready(ends[0], POLLIN, 0) == (POLLIN | POLLHUP) && read(ends[0], text, 10) == 4);
	CHECK(ready(ends[0], POLLIN, 0) == POLLHUP && read(ends[0], text, 10) == 0 &&
	      read(ends[0], text, 10) == 0);
}

CASE(a_write_without_readers_raises_sigpipe)
{
	signal(SIGPIPE, note);
	close(ends[0]);
	CHECK((ready(ends[1], POLLOUT, 0) & POLLERR) != 0);
	FAILS(EPIPE, write(ends[1], "x", 1));
	CHECK(caught == SIGPIPE && write(ends[1], "x", 0) == 0);
}

CASE(a_write_without_readers_fails_if_sigpipe_is_ignored)
{
	close(ends[0]);
	signal(SIGPIPE, SIG_IGN);
	FAILS(EPIPE, write(ends[1], "x", 1));
	CHECK(caught == 0);
}

CASE(sigpipe_ends_a_process)
{
	close(ends[0]);
	int status;
	pid_t child = fork();

	if (child == 0) {
		signal(SIGPIPE, SIG_DFL);
		write(ends[1], "x", 1);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
	      WTERMSIG(status) == SIGPIPE);
}

/* Has SIGALRM come again and again: the first may come before the wait begins. */
static void alarmed(int flags)
{
	struct sigaction action = { .sa_handler = note, .sa_flags = flags };

	caught = 0;
	sigaction(SIGALRM, &action, NULL);
	ualarm(50000, 50000);
}

/* How many alarms have been handled. A child sees it. */
static volatile int *alarms;

static void count_alarm(int signal)
{
	caught = signal;
	++*alarms;
}

CASE(a_reader_waits_for_a_writer)
{
	char text[10];
	int status;

	pid_t child = fork();

	if (child == 0) {
		usleep(30000);
		write(ends[1], "late", 4);
		_exit(0);
	}
	CHECK(read(ends[0], text, 10) == 4 && waitpid(child, &status, 0) == child);
}

/* The writer waits for the reader. */
CASE(all_of_a_long_write_arrives)
{
	static char block[200000];
	int status, total = 0, got;

	pid_t child = fork();

	if (child == 0) {
		close(ends[0]);
		for (unsigned i = 0; i < sizeof(block); i++)
			block[i] = i % 253;
		_exit(write(ends[1], block, sizeof(block)) == sizeof(block) ? 0 : 1);
	}
	int right = 1;

	while (total < (int)sizeof(block) && (got = read(ends[0], block, 7777)) > 0)
		for (int i = 0; i < got; i++, total++)
			right &= block[i] == (char)(total % 253);
	CHECK(right && total == sizeof(block));
	CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 0);
}

/* A write that has written something says how much. */
CASE(a_signal_ends_a_read_or_a_write)
{
	static char block[200000];
	char text[10];

	alarmed(0);
	FAILS(EINTR, read(ends[0], text, 1));
	ualarm(0, 0);
	CHECK(caught == SIGALRM && write(ends[1], block, 65536) == 65536);
	alarmed(0);
	FAILS(EINTR, write(ends[1], block, 1));
	ualarm(0, 0);
	CHECK(read(ends[0], block, 8192) == 8192);
	alarmed(0);
	CHECK(write(ends[1], block, 65536) == 8192 && caught == SIGALRM);
	ualarm(0, 0);
}

/* There is room after some alarms. All but the first alarm come while the write waits. */
CASE(with_sa_restart_a_write_is_made_again)
{
	static char block[200000];
	struct sigaction counting = { .sa_handler = count_alarm, .sa_flags = SA_RESTART };
	int status;
	pid_t child;

	CHECK(write(ends[1], block, 65536) == 65536);
	alarms = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	child = fork();
	if (child == 0) {
		while (*alarms < 3)
			usleep(1000);
		read(ends[0], block, 65536);
		_exit(0);
	}
	caught = 0;
	sigaction(SIGALRM, &counting, NULL);
	ualarm(50000, 50000);
	CHECK(write(ends[1], "x", 1) == 1 && caught == SIGALRM &&
	      waitpid(child, &status, 0) == child);
	ualarm(0, 0);
}

CASE(a_reader_learns_that_the_writer_has_gone)
{
	char text[10];
	int status;
	pid_t child;

	child = fork();
	if (child == 0) {
		close(ends[0]);
		usleep(30000);
		_exit(0);
	}
	close(ends[1]);
	CHECK(read(ends[0], text, 1) == 0 && waitpid(child, &status, 0) == child);
}

/* The write first tells what it has written. */
CASE(a_writer_learns_that_the_reader_has_gone)
{
	static char block[200000];
	int status;
	pid_t child;

	child = fork();
	if (child == 0) {
		while (readable() < 65536)
			usleep(1000);
		usleep(30000);
		_exit(0);
	}
	close(ends[0]);
	signal(SIGPIPE, SIG_IGN);
	CHECK(write(ends[1], block, 100000) == 65536);
	FAILS(EPIPE, write(ends[1], block, 1));
	CHECK(waitpid(child, &status, 0) == child);
}

/* Writes of up to PIPE_BUF bytes are short. */
CASE(short_writes_do_not_mix)
{
	char packet[PIPE_BUF];
	int status, right = 1;

	for (int writer = 0; writer < 3; writer++)
		if (fork() == 0) {
			close(ends[0]);
			memset(packet, 'a' + writer, sizeof(packet));
			for (int i = 0; i < 40; i++)
				if (write(ends[1], packet, 3000) != 3000)
					_exit(1);
			_exit(0);
		}
	close(ends[1]);
	for (int i = 0; i < 120; i++) {
		int got = 0, more;

		while (got < 3000 && (more = read(ends[0], packet + got, 3000 - got)) > 0)
			got += more;
		right &= got == 3000;
		for (int at = 1; at < 3000; at++)
			right &= packet[at] == packet[0];
	}
	CHECK(right && read(ends[0], packet, 1) == 0);
	for (int writer = 0; writer < 3; writer++) {
		right &= wait(&status) > 0 && status == 0;
	}
	CHECK(right);
}

/* A read of one byte, and what came of it. */
struct attempt {
	pthread_t thread;
	char *to;
	int result, error;
	volatile int done;
};

static void *attempt(void *argument)
{
	struct attempt *attempt = argument;

	attempt->result = read(ends[0], attempt->to, 1);
	attempt->error = errno;
	attempt->done = 1;
	return NULL;
}

static void begin(struct attempt *attempt_, char *to)
{
	attempt_->to = to;
	attempt_->done = 0;
	CHECK(pthread_create(&attempt_->thread, NULL, attempt, attempt_) == 0);
	usleep(30000);
}

static void await_attempt(struct attempt *attempt)
{
	for (int i = 0; i < 5000 && !attempt->done; i++)
		usleep(1000);
	CHECK(attempt->done);
	pthread_join(attempt->thread, NULL);
}

/* Who has waited for longer is woken first. */
CASE(a_reader_that_fails_leaves_the_bytes_to_the_next)
{
	struct attempt bad, good;
	char byte = 0;

	begin(&bad, at(8));
	begin(&good, &byte);
	CHECK(write(ends[1], "x", 1) == 1);
	await_attempt(&good);
	await_attempt(&bad);
	CHECK(good.result == 1 && byte == 'x' && bad.result == -1 && bad.error == EFAULT);
}

/* As of a write of up to PIPE_BUF bytes all come or none, and of a longer one whole pages. */
CASE(a_write_of_what_cannot_be_read_leaves_no_piece)
{
	const int rights = PROT_READ | PROT_WRITE;
	char *area = mmap(NULL, 4 * 4096, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int ends[2], waiting;

	CHECK(area != MAP_FAILED && mprotect(area + 3 * 4096, 4096, PROT_NONE) == 0);
	CHECK(pipe(ends) == 0);
	FAILS(EFAULT, write(ends[1], area + 3 * 4096 - 96, 200));
	CHECK(ioctl(ends[0], FIONREAD, &waiting) == 0 && waiting == 0);
	CHECK(write(ends[1], area, 10) == 10);
	FAILS(EFAULT, write(ends[1], area + 3 * 4096 - 96, 200));
	FAILS(EFAULT, write(ends[1], area + 3 * 4096 - 96, 4096));
	CHECK(ioctl(ends[0], FIONREAD, &waiting) == 0 && waiting == 10);
	CHECK(write(ends[1], area + 4096 - 96, 4 * 4096) == 2 * 4096);
	CHECK(ioctl(ends[0], FIONREAD, &waiting) == 0 && waiting == 10 + 2 * 4096);
	CHECK(close(ends[0]) == 0 && close(ends[1]) == 0 && munmap(area, 4 * 4096) == 0);
}
