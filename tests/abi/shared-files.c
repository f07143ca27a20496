// SPDX-License-Identifier: MIT OR Apache-2.0
// read(2) and write(2) of files that are mapped shared: both show the same bytes at once, in all processes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

#define PAGE 4096L
#define PAGES 8

static char path[] = "/tmp/shared-XXXXXX";

/* The child's verdict. */
static int passed(pid_t child)
{
	int status = -1;

	return waitpid(child, &status, 0) == child && status == 0;
}

/* Whether another process, which opens the file by its name, reads this. */
static int others_read(const char *text, off_t position)
{
	pid_t child = fork();

	if (!child) {
		char buffer[64] = "";
		int fd = open(path, O_RDONLY);

		_exit(pread(fd, buffer, strlen(text), position) != (ssize_t)strlen(text) || strcmp(buffer, text));
	}
	return passed(child);
}

/* Another process, which opens the file by its name, writes this. */
static int others_write(const char *text, off_t position, int flags)
{
	pid_t child = fork();

	if (!child) {
		int fd = open(path, flags);

		_exit(pwrite(fd, text, strlen(text), position) != (ssize_t)strlen(text));
	}
	return passed(child);
}

static void reading(int fd, char *a)
{
	char buffer[3 * PAGE] = "", other[10] = "";
	struct iovec vector[] = { { buffer, 3 }, { NULL, 0 }, { other, 4 } };

	strcpy(a + 100, "by mapping");
	CHECK(pread(fd, buffer, 11, 100) == 11 && !strcmp(buffer, "by mapping"));
	CHECK(lseek(fd, 103, SEEK_SET) == 103 && read(fd, buffer, 8) == 8 && !strcmp(buffer, "mapping") && lseek(fd, 0, SEEK_CUR) == 111);
	CHECK(lseek(fd, 100, SEEK_SET) == 100 && readv(fd, vector, 3) == 7 && !memcmp(buffer, "by ", 3) && !strcmp(other, "mapp"));
	strcpy(a + 103, "another");
	CHECK(preadv(fd, vector, 3, 100) == 7 && !memcmp(buffer, "by ", 3) && !strcmp(other, "anot"));
	CHECK(preadv2(fd, vector, 3, 101, 0) == 7 && !memcmp(buffer, "y a", 3) && !strcmp(other, "noth"));
	memset(a + PAGE - 10, 'x', PAGE + 20);
	CHECK(pread(fd, buffer, 3 * PAGE, 0) == 3 * PAGE && !memcmp(buffer, a, 3 * PAGE) && buffer[2 * PAGE + 9] == 'x');
	CHECK(others_read("by another", 100));
	strcpy(a + 2 * PAGE, "last");
	CHECK(pread(fd, buffer, 2 * PAGE, 2 * PAGE) == PAGE && !strcmp(buffer, "last"));
	CHECK(pread(fd, a + PAGE, 5, 2 * PAGE) == 5 && !strcmp(a + PAGE, "last"));
}

static void writing(int fd, char *a)
{
	struct iovec vector[] = { { "one", 3 }, { "", 0 }, { "two", 4 } };
	int other;

	CHECK(pwrite(fd, "written", 8, 200) == 8 && !strcmp(a + 200, "written"));
	CHECK(lseek(fd, PAGE - 3, SEEK_SET) == PAGE - 3 && write(fd, "over it", 8) == 8 && !strcmp(a + PAGE - 3, "over it"));
	CHECK(writev(fd, vector, 3) == 7 && !strcmp(a + PAGE + 5, "onetwo"));
	CHECK(pwritev(fd, vector, 3, 300) == 7 && !strcmp(a + 300, "onetwo"));
	CHECK(lseek(fd, 400, SEEK_SET) == 400 && pwritev2(fd, vector, 3, -1, 0) == 7 && !strcmp(a + 400, "onetwo"));
	CHECK(others_write("other", 500, O_RDWR) && !strcmp(a + 500, "other"));
	strcpy(a + 505, "mine");
	CHECK(others_write("again", 500, O_WRONLY) && !strcmp(a + 500, "againmine"));
	CHECK(write(-1, "x", 1) == -1 && pwrite(fd, at(16), 4, 0) == -1 && errno == EFAULT && a[0] == 0);
	/* The end moves. */
	CHECK(pwrite(fd, "behind", 7, 3 * PAGE + 50) == 7 && a[3 * PAGE] == 0 && !strcmp(a + 3 * PAGE + 50, "behind"));
	other = open(path, O_WRONLY | O_APPEND);
	CHECK(write(other, "append", 6) == 6 && write(other, "ed", 3) == 3 && !strcmp(a + 3 * PAGE + 57, "appended"));
	CHECK(pwrite(other, "!", 2, 0) == 2 && a[0] == 0 && !strcmp(a + 3 * PAGE + 66, "!") && close(other) == 0);
	CHECK(others_write("far", 5 * PAGE + 1, O_WRONLY) && !strcmp(a + 5 * PAGE + 1, "far") && a[5 * PAGE] == 0 && a[4 * PAGE] == 0);
	CHECK(others_write("near", 4 * PAGE, O_WRONLY) && !strcmp(a + 4 * PAGE, "near"));
	CHECK(others_read("near", 4 * PAGE) && others_read("appended", 3 * PAGE + 57));
}

int main(void)
{
	int fd = mkstemp(path);
	char *a, *b, buffer[8];

	CHECK(fd >= 0 && ftruncate(fd, 3 * PAGE) == 0);
	a = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(a != MAP_FAILED);
	reading(fd, a);
	writing(fd, a);
	CHECK(munmap(a, PAGES * PAGE) == 0 && pread(fd, buffer, 8, 500) == 8 && !memcmp(buffer, "againmin", 8));

	/* A mapping that only shows what is written, of a file that is empty at first: so databases do it. */
	CHECK(ftruncate(fd, 0) == 0);
	a = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	b = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 2 * PAGE);
	for (int page = 0; page < PAGES; page++) {
		char text[20];

		sprintf(text, "page %d", page);
		CHECK(pwrite(fd, text, 7, page * PAGE) == 7 && !strcmp(a + page * PAGE, text));
	}
	CHECK(!strcmp(b, "page 2") && others_write("PAGE", 2 * PAGE, O_RDWR) && !strcmp(b, "PAGE 2") && !strcmp(a + 2 * PAGE, "PAGE 2"));
	CHECK(munmap(b, PAGE) == 0 && munmap(a, PAGES * PAGE) == 0 && close(fd) == 0 && unlink(path) == 0);
	return failures != 0;
}
