// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * One system call, from before the instruction `syscall` to after it. No call goes
 * through the vDSO or a wrapper of the C library, but for `clock`.
 *
 *   overhead         nothing: what two readings of the clock cost
 *   getpid           the shortest call
 *   read-zero        read of 1 byte from /dev/zero
 *   write-null       write of 1 byte to /dev/null
 *   open-close       open of /dev/zero and close; one sample for both
 *   clock-call       clock_gettime as a system call
 *   clock            clock_gettime of the C library, so through the vDSO if there is one
 *   file-read        pread of 1 byte of a regular file on tmpfs; remote in the realm
 *   file-write       pwrite of 1 byte to it; remote in the realm
 *   file-open-close  open and close of it; remote in the realm
 *   doorbell         umask, which touches nothing but a field of the calling process: in the
 *                    realm what remains is the way to Linux and back, that is a
 *                    doorbell, the wake-up of the shadow's thread, and the reply
 *
 * The first four are those of the paper's Table 1, with the same devices.
 */
#include "bench.h"

#include <fcntl.h>
#include <sys/stat.h>

static int fd;
static char byte;
static char path[64];

static void call_nothing(void) {}

static void call_getpid(void)
{
	syscall(SYS_getpid);
}

static void call_read(void)
{
	if (syscall(SYS_read, fd, &byte, 1) != 1)
		fail("read");
}

static void call_write(void)
{
	if (syscall(SYS_write, fd, &byte, 1) != 1)
		fail("write");
}

static void call_open_close(void)
{
	long opened = syscall(SYS_open, path, O_RDONLY);

	if (opened < 0 || syscall(SYS_close, opened))
		fail("open and close");
}

static void call_clock(void)
{
	struct timespec time;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &time);
}

static void call_library_clock(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
}

static void call_pread(void)
{
	if (syscall(SYS_pread64, fd, &byte, 1, 0) != 1)
		fail("pread");
}

static void call_pwrite(void)
{
	if (syscall(SYS_pwrite64, fd, &byte, 1, 0) != 1)
		fail("pwrite");
}

static void call_umask(void)
{
	syscall(SYS_umask, 022);
}

/* A file of one byte on tmpfs. */
static void make_file(void)
{
	strcpy(path, "/dev/shm/crtos-bench-XXXXXX");
	fd = mkstemp(path);
	if (fd < 0 || write(fd, "x", 1) != 1)
		fail(path);
}

/*
 * What Linux does for the realm is measured while Linux is idle: what the start of this program and
 * of its shadow left to free, it has freed by then.
 */
static void settle(void)
{
	struct timespec pause = { 0, 500000000 };

	nanosleep(&pause, NULL);
}

static void remove_file(void)
{
	unlink(path);
}

/* A call that is inlined, so that the compiler puts nothing else between the readings. */
#define MEASURE(call) \
	for (long round = -WARM_UP; round < options.samples; round++) { \
		uint64_t before = ticks(); \
		call(); \
		sample(round, ticks() - before); \
	}

int main(int argc, char **argv)
{
	begin(argc, argv);
	if (wants("overhead")) {
		MEASURE(call_nothing);
	} else if (wants("getpid")) {
		MEASURE(call_getpid);
	} else if (wants("read-zero")) {
		fd = open("/dev/zero", O_RDONLY);
		MEASURE(call_read);
	} else if (wants("write-null")) {
		fd = open("/dev/null", O_WRONLY);
		MEASURE(call_write);
	} else if (wants("open-close")) {
		strcpy(path, "/dev/zero");
		MEASURE(call_open_close);
	} else if (wants("clock-call")) {
		MEASURE(call_clock);
	} else if (wants("clock")) {
		MEASURE(call_library_clock);
	} else if (wants("file-read")) {
		make_file();
		settle();
		MEASURE(call_pread);
		remove_file();
	} else if (wants("file-write")) {
		make_file();
		settle();
		MEASURE(call_pwrite);
		remove_file();
	} else if (wants("file-open-close")) {
		make_file();
		settle();
		MEASURE(call_open_close);
		remove_file();
	} else if (wants("doorbell")) {
		settle();
		MEASURE(call_umask);
	} else {
		return unknown();
	}
	return report();
}
