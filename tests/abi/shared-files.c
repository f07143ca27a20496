// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * read(2) and write(2) of files that are mapped shared: both show the same bytes at once, in all
 * processes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"
#include "children.h"

#define PAGE 4096L
#define PAGES 8

static char path[] = "/tmp/shared-XXXXXX";

/* Tells whether another process reads this; it opens the file by its name. */
static int others_read(const char *text, off_t position)
{
	pid_t child = fork();

	if (!child) {
		char buffer[64] = "";
		int fd = open(path, O_RDONLY);

		_exit(pread(fd, buffer, strlen(text), position) != (ssize_t)strlen(text) ||
		      strcmp(buffer, text));
	}
	return exits_with(child, 0);
}

/* Has another process write this; it opens the file by its name. Tells whether it could. */
static int others_write(const char *text, off_t position, int flags)
{
	pid_t child = fork();

	if (!child) {
		int fd = open(path, flags);

		_exit(pwrite(fd, text, strlen(text), position) != (ssize_t)strlen(text));
	}
	return exits_with(child, 0);
}

/* A file of three pages, and its mapping, which is longer. */
static int fd;
static char *a;

static void open_file(void)
{
	strcpy(path, "/tmp/shared-XXXXXX");
	fd = mkstemp(path);
	CHECK(fd >= 0 && ftruncate(fd, 3 * PAGE) == 0);
	a = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(a != MAP_FAILED);
}

static void close_file(void)
{
	CHECK(munmap(a, PAGES * PAGE) == 0 && close(fd) == 0 && unlink(path) == 0);
}

CASE(read_shows_what_the_mapping_has)
{
	char buffer[3 * PAGE] = "", other[10] = "";
	struct iovec vector[] = { { buffer, 3 }, { NULL, 0 }, { other, 4 } };

	open_file();
	strcpy(a + 100, "by mapping");
	CHECK(pread(fd, buffer, 11, 100) == 11 && !strcmp(buffer, "by mapping"));
	CHECK(lseek(fd, 103, SEEK_SET) == 103 && read(fd, buffer, 8) == 8 &&
	      !strcmp(buffer, "mapping") && lseek(fd, 0, SEEK_CUR) == 111);
	CHECK(lseek(fd, 100, SEEK_SET) == 100 && readv(fd, vector, 3) == 7 &&
	      !memcmp(buffer, "by ", 3) && !strcmp(other, "mapp"));
	strcpy(a + 103, "another");
	CHECK(preadv(fd, vector, 3, 100) == 7 && !memcmp(buffer, "by ", 3) && !strcmp(other, "anot"));
	CHECK(preadv2(fd, vector, 3, 101, 0) == 7 && !memcmp(buffer, "y a", 3) && !strcmp(other, "noth"));
	close_file();
}

CASE(read_crosses_pages_of_the_mapping)
{
	char buffer[3 * PAGE] = "";

	open_file();
	memset(a + PAGE - 10, 'x', PAGE + 20);
	CHECK(pread(fd, buffer, 3 * PAGE, 0) == 3 * PAGE && !memcmp(buffer, a, 3 * PAGE) &&
	      buffer[2 * PAGE + 9] == 'x');
	close_file();
}

CASE(another_process_reads_what_the_mapping_has)
{
	open_file();
	strcpy(a + 100, "by another");
	CHECK(others_read("by another", 100));
	close_file();
}

/* It may go into the mapping itself. */
CASE(read_ends_at_the_end_of_the_file)
{
	char buffer[3 * PAGE] = "";

	open_file();
	strcpy(a + 2 * PAGE, "last");
	CHECK(pread(fd, buffer, 2 * PAGE, 2 * PAGE) == PAGE && !strcmp(buffer, "last"));
	CHECK(pread(fd, a + PAGE, 5, 2 * PAGE) == 5 && !strcmp(a + PAGE, "last"));
	close_file();
}

CASE(the_mapping_shows_what_was_written)
{
	struct iovec vector[] = { { "one", 3 }, { "", 0 }, { "two", 4 } };

	open_file();
	CHECK(pwrite(fd, "written", 8, 200) == 8 && !strcmp(a + 200, "written"));
	CHECK(lseek(fd, PAGE - 3, SEEK_SET) == PAGE - 3 && write(fd, "over it", 8) == 8 &&
	      !strcmp(a + PAGE - 3, "over it"));
	CHECK(writev(fd, vector, 3) == 7 && !strcmp(a + PAGE + 5, "onetwo"));
	CHECK(pwritev(fd, vector, 3, 300) == 7 && !strcmp(a + 300, "onetwo"));
	CHECK(lseek(fd, 400, SEEK_SET) == 400 && pwritev2(fd, vector, 3, -1, 0) == 7 &&
	      !strcmp(a + 400, "onetwo"));
	close_file();
}

CASE(the_mapping_shows_what_another_process_has_written)
{
	char buffer[8];

	open_file();
	CHECK(others_write("other", 500, O_RDWR) && !strcmp(a + 500, "other"));
	strcpy(a + 505, "mine");
	CHECK(others_write("again", 500, O_WRONLY) && !strcmp(a + 500, "againmine"));
	CHECK(munmap(a, PAGES * PAGE) == 0 && pread(fd, buffer, 8, 500) == 8 &&
	      !memcmp(buffer, "againmin", 8));
	CHECK(close(fd) == 0 && unlink(path) == 0);
}

CASE(bad_writes_change_nothing)
{
	open_file();
	CHECK(write(-1, "x", 1) == -1 && pwrite(fd, at(16), 4, 0) == -1 && errno == EFAULT &&
	      a[0] == 0);
	close_file();
}

CASE(the_mapping_shows_what_is_appended)
{
	int other;

	open_file();
	CHECK(pwrite(fd, "behind", 7, 3 * PAGE + 50) == 7 && a[3 * PAGE] == 0 &&
	      !strcmp(a + 3 * PAGE + 50, "behind"));
	other = open(path, O_WRONLY | O_APPEND);
	CHECK(write(other, "append", 6) == 6 && write(other, "ed", 3) == 3 &&
	      !strcmp(a + 3 * PAGE + 57, "appended"));
	CHECK(pwrite(other, "!", 2, 0) == 2 && a[0] == 0 && !strcmp(a + 3 * PAGE + 66, "!") &&
	      close(other) == 0);
	close_file();
}

/* Other processes read what was appended. */
CASE(the_mapping_shows_what_others_append)
{
	open_file();
	CHECK(pwrite(fd, "appended", 8, 3 * PAGE + 57) == 8);
	CHECK(others_write("far", 5 * PAGE + 1, O_WRONLY) && !strcmp(a + 5 * PAGE + 1, "far") &&
	      a[5 * PAGE] == 0 && a[4 * PAGE] == 0);
	CHECK(others_write("near", 4 * PAGE, O_WRONLY) && !strcmp(a + 4 * PAGE, "near"));
	CHECK(others_read("near", 4 * PAGE) && others_read("appended", 3 * PAGE + 57));
	close_file();
}

/* What was stored there before is gone, for all. */
CASE(a_file_that_was_cut_is_zero_where_it_grows_again)
{
	char buffer[10] = "";
	int other;

	open_file();
	strcpy(a + 100, "first");
	strcpy(a + 300, "cut off");
	strcpy(a + 2 * PAGE, "last");
	CHECK(ftruncate(fd, 200) == 0 && a[300] == 0 && !strcmp(a + 100, "first"));
	CHECK(ftruncate(fd, 4 * PAGE) == 0 && a[300] == 0 && a[2 * PAGE] == 0);
	strcpy(a + 2 * PAGE + 1, "new");
	CHECK(pread(fd, buffer, 5, 2 * PAGE) == 5 && !memcmp(buffer, "\0new", 5));
	other = open(path, O_RDWR | O_TRUNC);
	CHECK(other >= 0 && ftruncate(other, 4 * PAGE) == 0 && close(other) == 0);
	CHECK(a[100] == 0 && a[2 * PAGE + 1] == 0);
	close_file();
}

CASE(a_hole_is_zero_in_the_mapping)
{
	char buffer[10] = "";

	open_file();
	strcpy(a + 100, "before");
	strcpy(a + 200, "inside");
	strcpy(a + PAGE, "inside");
	strcpy(a + 2 * PAGE + 10, "behind");
	CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 150, 2 * PAGE - 150) == 0);
	CHECK(!strcmp(a + 100, "before") && a[200] == 0 && a[PAGE] == 0 &&
	      !strcmp(a + 2 * PAGE + 10, "behind"));
	CHECK(msync(a, 3 * PAGE, MS_SYNC) == 0);
	CHECK(pread(fd, buffer, 6, PAGE) == 6 && buffer[0] == 0);
	CHECK(others_read("behind", 2 * PAGE + 10));
	close_file();
}

CASE(a_mapping_shows_how_fallocate_makes_the_file_longer)
{
	open_file();
	CHECK(fallocate(fd, 0, 3 * PAGE, 2 * PAGE) == 0 && a[4 * PAGE] == 0);
	strcpy(a + 4 * PAGE, "allocated");
	CHECK(others_read("allocated", 4 * PAGE));
	CHECK(posix_fallocate(fd, 0, PAGES * PAGE) == 0 && a[7 * PAGE] == 0);
	close_file();
}

/* Databases do so. */
CASE(a_mapping_for_reading_shows_how_an_empty_file_grows)
{
	char *b;

	open_file();
	CHECK(munmap(a, PAGES * PAGE) == 0);
	CHECK(ftruncate(fd, 0) == 0);
	a = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	b = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 2 * PAGE);
	for (int page = 0; page < PAGES; page++) {
		char text[20];

		sprintf(text, "page %d", page);
		CHECK(pwrite(fd, text, 7, page * PAGE) == 7 && !strcmp(a + page * PAGE, text));
	}
	CHECK(!strcmp(b, "page 2") && others_write("PAGE", 2 * PAGE, O_RDWR) &&
	      !strcmp(b, "PAGE 2") && !strcmp(a + 2 * PAGE, "PAGE 2"));
	CHECK(munmap(b, PAGE) == 0 && munmap(a, PAGES * PAGE) == 0 && close(fd) == 0 &&
	      unlink(path) == 0);
}
