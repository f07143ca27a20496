// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/*
 * Calls that Linux makes with the program's own pointers: data, errors, bad addresses and direct
 * I/O.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "check.h"

#define SIZE (3 << 20)

/* On a disk, so that O_DIRECT reaches into the pages of the program. */
static char folder[] = "/var/tmp/files-XXXXXX";

BEFORE_EACH
{
	static int made;

	CHECK((made++ || mkdtemp(folder)) && chdir(folder) == 0);
}

CASE(nothing_of_the_run_is_open)
{
	int fd;

	for (fd = 3; fd < 2000; fd++)
		if (close(fd) == 0)
			break;
	CHECK(fd == 2000);
	CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0 && getppid() > 0);
}

/* It also goes into pages that the program has not touched. */
CASE(data_goes_past_the_cache_and_comes_back)
{
	unsigned char *buffer = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *copy = malloc(SIZE);
	int fd = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0600);

	if (fd == -1 && errno == EINVAL)
		fd = open("direct", O_RDWR | O_CREAT, 0600);
	CHECK(fd >= 0);
	for (int i = 0; i < SIZE; i++)
		copy[i] = buffer[i] = i * 7 + i / 4096;
	CHECK(write(fd, buffer, SIZE) == SIZE);
	memset(buffer, 0, SIZE);
	CHECK(pread(fd, buffer, SIZE, 0) == SIZE && memcmp(buffer, copy, SIZE) == 0);
	/* Into pages that were never touched. */
	munmap(buffer, SIZE);
	buffer = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pread(fd, buffer, SIZE, 0) == SIZE && memcmp(buffer, copy, SIZE) == 0);
	close(fd);
	free(copy);
	munmap(buffer, SIZE);
}

CASE(vectors_are_written_and_read)
{
	char *buffer = malloc(SIZE), *copy = malloc(SIZE);
	struct iovec parts[16];
	int fd = open("vectors", O_RDWR | O_CREAT, 0600);

	for (int i = 0; i < SIZE; i++)
		buffer[i] = i % 251;
	for (int i = 0; i < 16; i++)
		parts[i] = (struct iovec){ buffer + i * (SIZE / 16), SIZE / 16 };
	CHECK(writev(fd, parts, 16) == SIZE);
	for (int i = 0; i < 16; i++)
		parts[i] = (struct iovec){ copy + (15 - i) * (SIZE / 16), SIZE / 16 };
	CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, parts, 16) == SIZE);
	CHECK(memcmp(copy, buffer + 15 * (SIZE / 16), SIZE / 16) == 0);
	CHECK(lseek(fd, 0, SEEK_CUR) == SIZE);
	FAILS(EINVAL, syscall(SYS_readv, fd, parts, -1));
	close(fd);
	free(buffer);
	free(copy);
}

CASE(a_pipe_holds_64_kib)
{
	char *buffer = malloc(65536);
	struct pollfd polled;
	int ends[2], total = 0;

	CHECK(pipe(ends) == 0 && ends[0] == 3 && ends[1] == 4);
	memset(buffer, 'p', 65536);
	CHECK(write(ends[1], buffer, 65536) == 65536);
	polled = (struct pollfd){ ends[0], POLLIN, 0 };
	CHECK(poll(&polled, 1, 0) == 1 && polled.revents == POLLIN);
	close(ends[1]);
	memset(buffer, 0, 65536);
	for (int got; (got = read(ends[0], buffer, 10000)) > 0;)
		total += got;
	CHECK(total == 65536 && buffer[5535] == 'p');
	polled.revents = 0;
	CHECK(poll(&polled, 1, 1000) == 1 && (polled.revents & POLLHUP));
	close(ends[0]);
	free(buffer);
}

CASE(linux_refuses_bad_addresses)
{
	struct stat status;
	int fd = open("/dev/zero", O_RDWR);

	FAILS(EFAULT, read(fd, at(8), 100));
	FAILS(EFAULT, read(fd, at(0x7e0000000000), 100));
	FAILS(EFAULT, read(fd, at(0xffff800000000000), 100));
	FAILS(EFAULT, read(fd, at(0x7ffffffff000), 1));
	FAILS(EFAULT, read(fd, at(0x7ffffffff000 - 8), 16));
	FAILS(EFAULT, read(fd, at(-8L), 16));
	FAILS(EFAULT, stat(at(8), &status));
	FAILS(EFAULT, stat("/", at(8)));
	FAILS(EFAULT, open(at(-1L), O_RDONLY));
	FAILS(EFAULT, pipe(at(16)));
}

CASE(linux_refuses_protected_memory)
{
	char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = open("/dev/zero", O_RDWR);

	mprotect(page + 4096, 4096, PROT_READ);
	memset(page, 1, 4096);
	FAILS(EFAULT, read(fd, page + 4096, 1));
	CHECK(read(fd, page, 4096 + 10) >= 4096 && page[0] == 0 && page[4095] == 0);
	mprotect(page + 4096, 4096, PROT_NONE);
	FAILS(EFAULT, syscall(SYS_clock_gettime, 0, page + 4096));
	FAILS(EFAULT, syscall(SYS_clock_gettime, 0, (void *)-16L));
	mprotect(page + 4096, 4096, PROT_READ | PROT_WRITE);
	CHECK(read(fd, page + 4096, 1) == 1);
	munmap(page + 4096, 4096);
	close(fd);
	munmap(page, 4096);
}

/* A device that ignores its data would not look at the address. */
CASE(a_pipe_refuses_memory_that_is_gone)
{
	char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	int ends[2];

	munmap(page + 4096, 4096);
	CHECK(pipe(ends) == 0);
	FAILS(EFAULT, write(ends[1], page + 4096, 1));
	CHECK(write(ends[1], page + 4090, 100) <= 6);
	close(ends[0]);
	close(ends[1]);
	munmap(page, 3 * 4096);
}

/* Makes a file of 64 pages. */
static void make_file(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT, 0600);

	CHECK(fd >= 0 && ftruncate(fd, 64 * 4096) == 0 && close(fd) == 0);
}

CASE(memory_that_linux_had_comes_back_with_other_contents)
{
	int fd = open("again", O_RDWR | O_CREAT, 0600), same = 1;

	for (int round = 0; round < 50; round++) {
		char *page = mmap(NULL, 64 * 4096, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		char byte = 0;

		same &= page[0] == 0 && page[63 * 4096] == 0;
		memset(page, round + 1, 64 * 4096);
		same &= pwrite(fd, page, 64 * 4096, 0) == 64 * 4096;
		same &= pread(fd, &byte, 1, 63 * 4096) == 1 && byte == round + 1;
		madvise(page, 4096, MADV_DONTNEED);
		same &= page[0] == 0 && page[4096] == round + 1;
		same &= pwrite(fd, page, 1, 0) == 1 && pread(fd, &byte, 1, 0) == 1 && byte == 0;
		munmap(page, 64 * 4096);
	}
	CHECK(same);
	close(fd);
}

CASE(a_folder_lists_all_its_files)
{
	struct dirent *entry;
	int count = 0;
	DIR *dir;

	CHECK(mkdir("d", 0755) == 0);
	for (int i = 0; i < 500; i++) {
		char name[40];

		sprintf(name, "d/some-name-that-is-not-short-%d", i);
		close(open(name, O_CREAT | O_WRONLY, 0600));
	}
	dir = opendir("d");
	while ((entry = readdir(dir)))
		count += entry->d_name[0] == 's';
	closedir(dir);
	CHECK(count == 500);
}

CASE(a_link_says_where_it_leads)
{
	struct stat status;
	char target[100] = "";

	CHECK(symlink("target", "link") == 0 && readlink("link", target, sizeof(target)) == 6);
	CHECK(strcmp(target, "target") == 0 && lstat("link", &status) == 0 && S_ISLNK(status.st_mode));
}

CASE(a_file_has_its_size_and_mode)
{
	struct stat status;

	make_file("again");
	CHECK(stat("again", &status) == 0 && status.st_size == 64 * 4096 &&
	      (status.st_mode & 0777) == 0600);
}

CASE(the_current_folder_has_a_name)
{
	char cwd[200];

	CHECK(mkdir("e", 0755) == 0 && chdir("e") == 0 && getcwd(cwd, sizeof(cwd)) &&
	      strncmp(cwd, folder, strlen(folder)) == 0);
	CHECK(chdir("..") == 0);
	CHECK(chdir("/") == 0);
}

CASE(names_and_numbers_that_do_not_fit_are_refused)
{
	char cwd[200];
	int fd;

	make_file("again");
	CHECK((mkdir("d", 0755) == 0 || errno == EEXIST) &&
	      close(open("d/file", O_CREAT | O_WRONLY, 0600)) == 0);
	FAILS(ENOENT, open("absent", O_RDONLY));
	FAILS(ENOTDIR, open("again/x", O_RDONLY));
	FAILS(EEXIST, mkdir("d", 0755));
	FAILS(ENOTEMPTY, rmdir("d"));
	FAILS(EBADF, close(500));
	FAILS(EBADF, read(-1, cwd, 1));
	FAILS(EISDIR, open("d", O_WRONLY));
	FAILS(ERANGE, getcwd(cwd, 2) ? 0 : -1);
	FAILS(ENOTTY, ioctl((fd = open("again", O_RDONLY)), 0x5401, cwd));
	CHECK(dup2(fd, 77) == 77 && fcntl(77, F_GETFD) == 0 && close(77) == 0 && close(fd) == 0);
}
