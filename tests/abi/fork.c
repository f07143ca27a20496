// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The memory of a forked process: what the parent has written, and zeros where nobody has written,
 * be the writer the program, the kernel for it, or an earlier child. From then on it is its own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

#define PAGE 4096ul
#define MIB (1ul << 20)
/* Some pages of 2 MiB, whatever the alignment. */
#define LENGTH (8 * MIB)

static unsigned char *populated(size_t length)
{
	void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		abort();
	return memory;
}

/* Tells whether each page begins and ends with `value`, and the page `other` with `otherwise`. */
static int has(const unsigned char *memory, size_t length, int value, size_t other, int otherwise)
{
	for (size_t page = 0; page < length / PAGE; page++) {
		int wanted = page == other ? otherwise : value;

		if (memory[page * PAGE] != wanted || memory[page * PAGE + PAGE - 1] != wanted)
			return 0;
	}
	return 1;
}

/* The exit status of a child that runs `body`. */
static int child(int (*body)(void))
{
	int status;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (!pid)
		_exit(!body());
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static unsigned char *memory;
static int pipes[2];

static int is_untouched(void)
{
	return has(memory, LENGTH, 0, SIZE_MAX, 0);
}

static int sees_one_page(void)
{
	return has(memory, LENGTH, 0, 300, 7);
}

static int sees_all(void)
{
	return has(memory, LENGTH, 9, SIZE_MAX, 0);
}

static int grandchild_sees_one_page(void)
{
	return sees_one_page() && !child(sees_one_page);
}

static int writes(void)
{
	memset(memory, 1, LENGTH);
	return has(memory, LENGTH, 1, SIZE_MAX, 0);
}

/* Waits until the parent says that it has written after the fork. */
static int keeps(void)
{
	char byte;

	return read(pipes[0], &byte, 1) == 1 && sees_one_page();
}

/* Neither process sees what the other writes afterwards. */
CASE(a_child_sees_what_the_parent_wrote)
{
	memory = populated(LENGTH);
	CHECK(!child(is_untouched));
	CHECK(!child(writes));
	CHECK(is_untouched());
	memset(memory + 300 * PAGE, 7, PAGE);
	CHECK(!child(sees_one_page));
	CHECK(!child(grandchild_sees_one_page));
	CHECK(!child(writes));
	CHECK(sees_one_page());
	memset(memory, 9, LENGTH);
	CHECK(!child(sees_all));
	munmap(memory, LENGTH);
}

CASE(a_child_sees_what_the_kernel_wrote_for_the_parent)
{
	int file = open("/proc/self/exe", O_RDONLY), zero = open("/dev/zero", O_RDONLY);
	unsigned char start[4];

	CHECK(pread(file, start, 4, 0) == 4 && start[0] == 0x7f);
	memory = populated(LENGTH);
	/* One byte by a file of Linux, one by a pipe. */
	CHECK(pread(file, memory + 300 * PAGE, 1, 0) == 1);
	CHECK(pipe(pipes) == 0 && write(pipes[1], start, 1) == 1);
	CHECK(read(pipes[0], memory + 301 * PAGE - 1, 1) == 1);
	memset(memory + 300 * PAGE, 7,
	       memory[300 * PAGE] == 0x7f && memory[301 * PAGE - 1] == 0x7f);
	memory[301 * PAGE - 1] = memory[300 * PAGE];
	CHECK(!child(sees_one_page));
	CHECK(read(zero, memory, 300 * PAGE) == 300 * PAGE && !child(sees_one_page));
	munmap(memory, LENGTH);
	close(file);
	close(zero);
}

CASE(a_child_sees_memory_that_was_protected_and_moved)
{
	unsigned char *old = populated(LENGTH);

	memset(old + 300 * PAGE, 7, PAGE);
	CHECK(mprotect(old + 299 * PAGE, 2 * PAGE, PROT_READ) == 0);
	CHECK(mprotect(old + 299 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE) == 0);
	memory = mremap(old, LENGTH, LENGTH + 64 * PAGE, MREMAP_MAYMOVE);
	CHECK(memory != MAP_FAILED);
	CHECK(!child(sees_one_page));
	munmap(memory, LENGTH + 64 * PAGE);
}

CASE(a_child_does_not_see_what_the_parent_writes_later)
{
	pid_t pid;
	int status;

	CHECK(pipe(pipes) == 0);
	memory = populated(LENGTH);
	memset(memory + 300 * PAGE, 7, PAGE);
	pid = fork();
	if (!pid)
		_exit(!keeps());
	memset(memory, 8, LENGTH);
	CHECK(write(pipes[1], "x", 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	munmap(memory, LENGTH);
}

static int is_there(void)
{
	unsigned char vector[4];

	return mincore(memory, 4 * PAGE, vector) == 0;
}

static int is_missing(void)
{
	unsigned char vector[4];

	return mincore(memory, PAGE, vector) < 0 && errno == ENOMEM &&
	       mincore(memory + PAGE, PAGE, vector) == 0;
}

static int is_empty(void)
{
	return has(memory, 4 * PAGE, 7, 2, 0);
}

static int is_whole(void)
{
	return has(memory, 4 * PAGE, 7, SIZE_MAX, 0);
}

static int stays_empty(void)
{
	if (!is_empty())
		return 0;
	memset(memory + 2 * PAGE, 7, PAGE);
	return !child(is_empty);
}

CASE(advice_says_what_a_child_gets)
{
	unsigned char *shared = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	memory = populated(4 * PAGE);
	memset(memory, 7, 4 * PAGE);
	CHECK(madvise(memory + 2 * PAGE, PAGE, MADV_WIPEONFORK) == 0);
	CHECK(is_whole() && !child(stays_empty) && is_whole());
	CHECK(madvise(memory, 4 * PAGE, MADV_KEEPONFORK) == 0 && !child(is_whole));
	CHECK(madvise(memory, PAGE, MADV_DONTFORK) == 0);
	CHECK(!child(is_missing) && is_there());
	CHECK(madvise(memory, 4 * PAGE, MADV_DOFORK) == 0 && !child(is_whole));
	munmap(memory, 4 * PAGE);
	munmap(shared, PAGE);
}

CASE(bad_advice_is_refused)
{
	unsigned char *shared = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	memory = populated(4 * PAGE);
	FAILS(EINVAL, madvise(shared, PAGE, MADV_WIPEONFORK));
	CHECK(madvise(shared, PAGE, MADV_DONTFORK) == 0);
	munmap(memory, 4 * PAGE);
	FAILS(ENOMEM, madvise(memory, PAGE, MADV_WIPEONFORK));
	munmap(shared, PAGE);
}
