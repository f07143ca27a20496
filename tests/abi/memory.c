// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* mmap, munmap, mprotect, mremap, brk, madvise and mlock: results and errors. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "check.h"
#include "children.h"
#include "touch.h"

static char *map(size_t length, int protection)
{
	return mmap(NULL, length, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Returns how many pages are in memory, or -1. */
static int resident(char *start, int pages)
{
	unsigned char vector[64] = { 0 };
	int count = 0;

	if (mincore(start, pages * PAGE, vector) < 0)
		return -1;
	for (int i = 0; i < pages; i++)
		count += vector[i] & 1;
	return count;
}

static double seconds(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* Returns how long some calls for one page take, in seconds of the processor. */
static double time_of_calls(char *page)
{
	unsigned char vector[1];
	double least = 1e9, start;

	for (int round = 0; round < 10; round++) {
		start = seconds();
		for (int i = 0; i < 50; i++) {
			madvise(page, PAGE, MADV_NORMAL);
			mincore(page, PAGE, vector);
			munlock(page, PAGE);
			msync(page, PAGE, MS_ASYNC);
		}
		if (seconds() - start < least)
			least = seconds() - start;
	}
	return least;
}

/* Makes a file of three pages and ten bytes with "file" at the start of the second page. */
static int make_file(char *name)
{
	int fd = mkstemp(name);

	CHECK(fd >= 0 && ftruncate(fd, 3 * PAGE + 10) == 0 && pwrite(fd, "file", 4, PAGE) == 4);
	return fd;
}

BEFORE_EACH
{
	signal(SIGSEGV, caught);
	signal(SIGBUS, caught);
}

CASE(new_memory_is_zero)
{
	char *a = map(8 * PAGE, PROT_READ | PROT_WRITE);

	CHECK(a != MAP_FAILED && (uintptr_t)a % PAGE == 0);
	CHECK(a[0] == 0 && a[8 * PAGE - 1] == 0);
	munmap(a, 8 * PAGE);
}

CASE(pages_between_others_can_be_unmapped)
{
	char *a = map(8 * PAGE, PROT_READ | PROT_WRITE);

	memset(a, 'x', 8 * PAGE);
	CHECK(munmap(a + 2 * PAGE, PAGE) == 0);
	CHECK(touch(a + 2 * PAGE, 0) == SIGSEGV);
	CHECK(touch(a + PAGE, 1) == 0 && touch(a + 3 * PAGE, 1) == 0);
	munmap(a, 8 * PAGE);
}

CASE(protection_holds_and_can_be_changed_back)
{
	char *a = map(8 * PAGE, PROT_READ | PROT_WRITE);

	memset(a, 'x', 8 * PAGE);
	CHECK(munmap(a + 2 * PAGE, PAGE) == 0);
	CHECK(mprotect(a, PAGE, PROT_READ) == 0);
	CHECK(touch(a, 0) == 0 && touch(a, 1) == SIGSEGV);
	CHECK(mprotect(a, PAGE, PROT_NONE) == 0);
	CHECK(touch(a, 0) == SIGSEGV);
	CHECK(mprotect(a, PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(a[0] == 'x' && touch(a, 1) == 0);
	FAILS(ENOMEM, mprotect(a, 4 * PAGE, PROT_READ));
	FAILS(EINVAL, mprotect(a + 1, PAGE, PROT_READ));
	munmap(a, 8 * PAGE);
}

CASE(what_is_not_mapped_can_be_unmapped)
{
	char *a = map(8 * PAGE, PROT_READ | PROT_WRITE);

	CHECK(munmap(a, 8 * PAGE) == 0);
	CHECK(munmap(a, 8 * PAGE) == 0);
	FAILS(EINVAL, munmap(a + 1, PAGE));
	FAILS(EINVAL, munmap(a, 0));
}

CASE(bad_mappings_are_refused)
{
	FAILS(EINVAL, map(0, PROT_READ));
	FAILS(ENOMEM, map(1UL << 47, PROT_READ));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0));
	FAILS(EINVAL,
	      mmap((void *)1, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	FAILS(EBADF, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0));
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 1));
}

/* MAP_FIXED_NOREPLACE refuses to. */
CASE(a_fixed_mapping_replaces_what_was_there)
{
	char *a, *b;

	a = map(4 * PAGE, PROT_READ | PROT_WRITE);
	b = mmap(a + PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	CHECK(b == a + PAGE && b[0] == 0);
	FAILS(EEXIST,
	      mmap(a, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
	CHECK(munmap(a + PAGE, PAGE) == 0);
	b = mmap(a + PAGE, PAGE, PROT_READ,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(b == a + PAGE);
	munmap(a, 4 * PAGE);
}

CASE(a_mapping_grows_and_shrinks)
{
	char *a, *b;

	a = map(2 * PAGE, PROT_READ | PROT_WRITE);
	a[0] = 'm';
	b = mremap(a, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
	CHECK(b != MAP_FAILED && b[0] == 'm' && b[63 * PAGE] == 0);
	CHECK(mremap(b, 64 * PAGE, PAGE, 0) == b && b[0] == 'm');
	CHECK(touch(b + PAGE, 0) == SIGSEGV);
	munmap(b, PAGE);
}

CASE(what_has_several_rights_can_become_shorter)
{
	char *a = map(4 * PAGE, PROT_READ | PROT_WRITE), *b;

	a[0] = a[PAGE] = 'm';
	CHECK(mprotect(a, PAGE, PROT_READ) == 0);
	CHECK(mremap(a, 4 * PAGE, 4 * PAGE, 0) == a);
	CHECK(mremap(a, 4 * PAGE, 2 * PAGE, MREMAP_MAYMOVE) == a && a[0] == 'm' && a[PAGE] == 'm');
	CHECK(touch(a + PAGE, 1) == 0 && touch(a + 2 * PAGE, 0) == SIGSEGV);
	FAILS(EFAULT, mremap(a, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE));
	b = map(8 * PAGE, PROT_READ) + 4 * PAGE;
	CHECK(mremap(a, 2 * PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, b) == b && b[0] == 'm');
	CHECK(touch(a, 0) == SIGSEGV && touch(a + PAGE, 0) == SIGSEGV);
	munmap(b - 4 * PAGE, 8 * PAGE);
}

/* Maps memory below 2 GiB. */
static char *map_low(void *hint, size_t size)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT;

	return mmap(hint, size, PROT_READ | PROT_WRITE, flags, -1, 0);
}

/* Compilers at run time map what they make so (luajit, mono). */
CASE(memory_with_map_32bit_lies_in_the_second_gib)
{
	const uintptr_t gib = 1 << 30;
	char *a = map_low(NULL, 3 * PAGE), *b = map_low(NULL, 600 << 20), *c;
	uintptr_t at = (uintptr_t)a;
	int program = open("/proc/self/exe", O_RDONLY);

	CHECK(a != MAP_FAILED && at >= gib && at + 3 * PAGE <= 2 * gib);
	a[2 * PAGE] = 'm';
	CHECK(b != MAP_FAILED && (uintptr_t)b >= gib && (uintptr_t)b + (600 << 20) <= 2 * gib);
	FAILS(ENOMEM, map_low(NULL, 600 << 20));
	FAILS(ENOMEM, map_low(NULL, 2 * gib));
	munmap(b, 600 << 20);
	/* A place that is free is taken, if it lies low. */
	CHECK(map_low(b, PAGE) == b);
	c = map_low((void *)(gib / 2), PAGE);
	CHECK(c == (char *)(gib / 2));
	munmap(c, PAGE);
	c = map_low((void *)(3 * gib), PAGE);
	CHECK(c != MAP_FAILED && (uintptr_t)c < 2 * gib);
	munmap(c, PAGE);
	c = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_32BIT, program, 0);
	CHECK(c != MAP_FAILED && (uintptr_t)c < 2 * gib && c[1] == 'E');
	munmap(c, PAGE);
	c = mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	CHECK(c != MAP_FAILED && (uintptr_t)c < 2 * gib);
	munmap(c, PAGE);
	munmap(a, 3 * PAGE);
	munmap(b, PAGE);
	close(program);
}

CASE(bad_resizes_are_refused)
{
	char *b = map(PAGE, PROT_READ | PROT_WRITE);

	FAILS(EINVAL, mremap(b + 1, PAGE, PAGE, 0));
	FAILS(EINVAL, mremap(b, PAGE, 0, 0));
	munmap(b, PAGE);
	FAILS(EFAULT, mremap(b, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
}

/* mremap with MREMAP_DONTUNMAP to an address, with further flags. */
static char *move_pages(char *from, size_t old, size_t new, int flags, char *to)
{
	return (char *)syscall(SYS_mremap, from, old, new, flags | MREMAP_DONTUNMAP, to);
}

CASE(pages_move_and_leave_their_mapping)
{
	char *a = map(4 * PAGE, PROT_READ | PROT_WRITE), *b, *room;

	memset(a, 'a', 4 * PAGE);
	b = move_pages(a + PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE, NULL);
	CHECK(b != MAP_FAILED && b != a + PAGE && b[0] == 'a' && b[2 * PAGE - 1] == 'a');
	CHECK(a[0] == 'a' && a[PAGE] == 0 && a[2 * PAGE] == 0 && a[3 * PAGE] == 'a');
	a[PAGE] = 'n';
	CHECK(b[0] == 'a' && munmap(b, 2 * PAGE) == 0 && a[PAGE] == 'n');
	room = map(8 * PAGE, PROT_NONE);
	b = move_pages(a, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + PAGE);
	CHECK(b == room + PAGE && b[0] == 'a' && a[0] == 0 && touch(room, 0) == SIGSEGV);
	/* A place that is taken, or is not, is a wish. */
	CHECK(munmap(room + 4 * PAGE, 4 * PAGE) == 0);
	CHECK(move_pages(a, PAGE, PAGE, MREMAP_MAYMOVE, room + 4 * PAGE) == room + 4 * PAGE);
	b = move_pages(a, PAGE, PAGE, MREMAP_MAYMOVE, room);
	CHECK(b != MAP_FAILED && b != room && munmap(b, PAGE) == 0 && munmap(room, 8 * PAGE) == 0);
	/* Memory that is locked is not locked where it was. */
	CHECK(mlock(a, PAGE) == 0);
	b = move_pages(a, PAGE, PAGE, MREMAP_MAYMOVE, NULL);
	CHECK(b != MAP_FAILED && madvise(a, PAGE, MADV_DONTNEED) == 0);
	FAILS(EINVAL, madvise(b, PAGE, MADV_DONTNEED));
	CHECK(munmap(b, PAGE) == 0 && munmap(a, 4 * PAGE) == 0);
}

CASE(pages_that_cannot_leave_their_mapping_stay)
{
	char *a = map(4 * PAGE, PROT_READ | PROT_WRITE), *high = at(0x7ffffffff000);

	memset(a, 'a', 4 * PAGE);
	FAILS(EINVAL, move_pages(a, PAGE, PAGE, 0, NULL));
	FAILS(EINVAL, move_pages(a, PAGE, PAGE, MREMAP_FIXED, a + 2 * PAGE));
	FAILS(EINVAL, move_pages(a, PAGE, 2 * PAGE, MREMAP_MAYMOVE, NULL));
	FAILS(EINVAL, move_pages(a, 2 * PAGE, PAGE, MREMAP_MAYMOVE, NULL));
	FAILS(EINVAL, move_pages(a, PAGE, PAGE, MREMAP_MAYMOVE, a + 1));
	FAILS(EINVAL, move_pages(a, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE, a + PAGE));
	FAILS(EINVAL, move_pages(a, PAGE, PAGE, MREMAP_MAYMOVE, high));
	FAILS(EINVAL, move_pages(a + 1, PAGE, PAGE, MREMAP_MAYMOVE, NULL));
	CHECK(mprotect(a + PAGE, PAGE, PROT_READ) == 0);
	FAILS(EFAULT, move_pages(a, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE, NULL));
	CHECK(a[0] == 'a' && a[PAGE] == 'a' && munmap(a, 4 * PAGE) == 0);
	FAILS(EFAULT, move_pages(a, PAGE, PAGE, MREMAP_MAYMOVE, NULL));
}

CASE(memory_that_is_given_up_is_zero)
{
	char *a = map(3 * PAGE, PROT_READ | PROT_WRITE);

	memset(a, 'y', 3 * PAGE);
	CHECK(madvise(a + PAGE, PAGE, MADV_DONTNEED) == 0);
	CHECK(a[PAGE - 1] == 'y' && a[PAGE] == 0 && a[2 * PAGE] == 'y');
	CHECK(madvise(a, PAGE, 24 /* MADV_DONTNEED_LOCKED */) == 0 && a[0] == 0);
	munmap(a, 3 * PAGE);
}

CASE(locked_memory_is_not_given_up)
{
	char *a = map(4 * PAGE, PROT_READ | PROT_WRITE);
	char *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	memset(a, 'y', 4 * PAGE);
	CHECK(mlock(a + 2 * PAGE, PAGE) == 0);
	FAILS(EINVAL, madvise(a + 2 * PAGE, PAGE, MADV_DONTNEED));
	FAILS(EINVAL, madvise(a + 2 * PAGE, PAGE, MADV_FREE));
	CHECK(a[2 * PAGE] == 'y');
	/* What lies before is given up, what lies behind is not. */
	FAILS(EINVAL, madvise(a + PAGE, 3 * PAGE, MADV_DONTNEED));
	CHECK(a[0] == 'y' && a[PAGE] == 0 && a[2 * PAGE] == 'y' && a[3 * PAGE] == 'y');
	CHECK(madvise(a + 2 * PAGE, PAGE, 24 /* MADV_DONTNEED_LOCKED */) == 0 && a[2 * PAGE] == 0);
	a[2 * PAGE] = 'y';
	CHECK(munlock(a + 2 * PAGE, PAGE) == 0);
	CHECK(madvise(a + 2 * PAGE, PAGE, MADV_DONTNEED) == 0 && a[2 * PAGE] == 0);
	shared[0] = 'y';
	CHECK(mlockall(MCL_CURRENT) == 0);
	FAILS(EINVAL, madvise(a, PAGE, MADV_DONTNEED));
	FAILS(EINVAL, madvise(shared, PAGE, MADV_REMOVE));
	CHECK(a[0] == 'y' && shared[0] == 'y');
	CHECK(munlockall() == 0);
	CHECK(madvise(a, PAGE, MADV_DONTNEED) == 0 && a[0] == 0);
	CHECK(madvise(shared, PAGE, MADV_REMOVE) == 0 && shared[0] == 0);
	munmap(shared, PAGE);
	munmap(a, 4 * PAGE);
}

CASE(memory_is_given_up_beside_a_hole)
{
	char *a = map(3 * PAGE, PROT_READ | PROT_WRITE);

	memset(a, 'y', 3 * PAGE);
	CHECK(munmap(a + PAGE, PAGE) == 0);
	FAILS(ENOMEM, madvise(a, 3 * PAGE, MADV_DONTNEED));
	CHECK(a[0] == 0 && a[2 * PAGE] == 0 && munmap(a, 3 * PAGE) == 0);
}

CASE(rights_change_up_to_a_hole)
{
	char *a = map(3 * PAGE, PROT_READ | PROT_WRITE);

	CHECK(munmap(a + PAGE, PAGE) == 0);
	FAILS(ENOMEM, mprotect(a, 3 * PAGE, PROT_READ));
	CHECK(touch(a, 1) == SIGSEGV && touch(a + 2 * PAGE, 1) == 0);
	FAILS(ENOMEM, mprotect(a + PAGE, 2 * PAGE, PROT_READ));
	CHECK(touch(a + 2 * PAGE, 1) == 0 && munmap(a, 3 * PAGE) == 0);
}

CASE(bad_advice_is_refused)
{
	char *a = map(3 * PAGE, PROT_READ | PROT_WRITE);

	memset(a, 'y', 3 * PAGE);
	FAILS(EINVAL, madvise(a, PAGE, 1000));
	FAILS(EINVAL, madvise(a, PAGE, 5));
	FAILS(EINVAL, madvise(a + 1, PAGE, MADV_NORMAL));
	/* No huge page fits there. */
	FAILS(EINVAL, madvise(a, 3 * PAGE, 25 /* MADV_COLLAPSE */));
	munmap(a, 3 * PAGE);
}

/* A hole is told of in the end. */
CASE(advice_is_followed_up_to_what_it_is_wrong_for)
{
	const int shared = MAP_SHARED | MAP_ANONYMOUS;
	char *a = map(6 * PAGE, PROT_READ | PROT_WRITE), *b;

	memset(a, 'y', 6 * PAGE);
	CHECK(munmap(a + PAGE, PAGE) == 0 && mlock(a + 3 * PAGE, PAGE) == 0);
	FAILS(EINVAL, madvise(a, 5 * PAGE, MADV_COLD));
	FAILS(ENOMEM, madvise(a, 3 * PAGE, MADV_COLD));
	FAILS(EINVAL, madvise(a, 5 * PAGE, MADV_FREE));
	FAILS(ENOMEM, madvise(a, 3 * PAGE, MADV_FREE));
	CHECK(a[3 * PAGE] == 'y' && munlock(a + 3 * PAGE, PAGE) == 0);
	b = mmap(a + 5 * PAGE, PAGE, PROT_READ | PROT_WRITE, shared | MAP_FIXED, -1, 0);
	CHECK(b == a + 5 * PAGE);
	FAILS(EINVAL, madvise(a, 6 * PAGE, MADV_WIPEONFORK));
	FAILS(EINVAL, madvise(a, 6 * PAGE, MADV_REMOVE));
	FAILS(ENOMEM, madvise(a + PAGE, 3 * PAGE, MADV_DONTFORK));
	if (fork() == 0)
		_exit(touch(a, 0) != 0 || touch(a + 2 * PAGE, 0) != SIGSEGV ||
		      touch(a + 3 * PAGE, 0) != SIGSEGV || touch(a + 4 * PAGE, 0) != 0);
	CHECK(exits_with(-1, 0) && munmap(a, 6 * PAGE) == 0);
	b = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, shared, -1, 0);
	memset(b, 'y', 3 * PAGE);
	CHECK(munmap(b + PAGE, PAGE) == 0);
	FAILS(ENOMEM, madvise(b, 3 * PAGE, MADV_REMOVE));
	CHECK(b[0] == 0 && b[2 * PAGE] == 0 && munmap(b, 3 * PAGE) == 0);
	FAILS(ENOMEM, madvise(at(0x7ffffffff000), PAGE, MADV_NORMAL));
	FAILS(EINVAL, madvise(at(0x7ffffffff000), PAGE, 1000));
	FAILS(EINVAL, madvise(a, 0, 1000));
	CHECK(madvise(a, 0, MADV_NORMAL) == 0);
}

CASE(memory_is_not_populated_against_its_rights)
{
	char *a = map(4 * PAGE, PROT_READ | PROT_WRITE);

	CHECK(mprotect(a + PAGE, PAGE, PROT_READ) == 0);
	CHECK(mprotect(a + 3 * PAGE, PAGE, PROT_NONE) == 0);
	CHECK(madvise(a, PAGE, MADV_POPULATE_WRITE) == 0);
	CHECK(madvise(a, 3 * PAGE, MADV_POPULATE_READ) == 0);
	FAILS(EINVAL, madvise(a, 3 * PAGE, MADV_POPULATE_WRITE));
	FAILS(EINVAL, madvise(a, 4 * PAGE, MADV_POPULATE_READ));
	FAILS(EINVAL, madvise(a + 3 * PAGE, PAGE, MADV_POPULATE_READ));
	CHECK(munmap(a + PAGE, PAGE) == 0);
	FAILS(ENOMEM, madvise(a, 3 * PAGE, MADV_POPULATE_WRITE));
	munmap(a, 4 * PAGE);
}

CASE(mapped_memory_can_be_locked_and_synced)
{
	char *a = map(3 * PAGE, PROT_READ | PROT_WRITE);
	unsigned char vector[4];

	memset(a, 'y', 3 * PAGE);
	CHECK(mlock(a, 3 * PAGE) == 0 && munlock(a, 3 * PAGE) == 0);
	CHECK(mincore(a, 3 * PAGE, vector) == 0 && (vector[0] & 1) == 1);
	CHECK(msync(a, 3 * PAGE, MS_SYNC) == 0);
	CHECK(mlock(a, 0) == 0 && madvise(a, 0, MADV_POPULATE_READ) == 0);
	munmap(a, 3 * PAGE);
}

CASE(memory_with_a_hole_cannot_be_locked_or_synced)
{
	char *a = map(3 * PAGE, PROT_READ | PROT_WRITE);
	unsigned char vector[4];

	memset(a, 'y', 3 * PAGE);
	munmap(a + PAGE, PAGE);
	FAILS(ENOMEM, mlock(a, 3 * PAGE));
	FAILS(ENOMEM, mlock(a + PAGE, PAGE));
	/* What lies before the hole is locked. */
	FAILS(EINVAL, madvise(a, PAGE, MADV_DONTNEED));
	CHECK(madvise(a + 2 * PAGE, PAGE, MADV_COLD) == 0);
	FAILS(ENOMEM, munlock(a, 3 * PAGE));
	CHECK(madvise(a, PAGE, MADV_COLD) == 0);
	/* As many bytes as that are none, or too many. */
	CHECK(mlock(a, -1UL) == 0 && munlock(a, -1UL) == 0);
	FAILS(EINVAL, mlock(a, -2 * PAGE));
	FAILS(EINVAL, munlock(a, -2 * PAGE));
	FAILS(ENOMEM, msync(a, 3 * PAGE, MS_SYNC));
	FAILS(ENOMEM, mincore(a, 3 * PAGE, vector));
	munmap(a, 3 * PAGE);
}

CASE(untouched_memory_is_not_resident)
{
	char *a;

	a = map(4 * PAGE, PROT_READ | PROT_WRITE);
	CHECK(resident(a, 4) == 0);
	a[PAGE] = 1;
	CHECK(resident(a, 4) == 1 && resident(a + PAGE, 1) == 1);
	munmap(a, 4 * PAGE);
}

/* C libraries make the stacks of threads like this. */
CASE(locked_memory_is_there_as_soon_as_it_can_be_written)
{
	char *stack;

	FAILS(EINVAL, mlockall(0));
	CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
	stack = map(16 * PAGE, PROT_NONE);
	CHECK(resident(stack, 16) == 0);
	CHECK(mprotect(stack + PAGE, 8 * PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(resident(stack, 16) == 8 && resident(stack + PAGE, 8) == 8);
	munmap(stack, 16 * PAGE);
	CHECK(munlockall() == 0);
}

CASE(memory_is_locked_when_it_is_touched)
{
	char *a = map(8 * PAGE, PROT_READ | PROT_WRITE), *b;

	FAILS(EINVAL, mlock2(a, PAGE, 2));
	CHECK(mlock2(a, 4 * PAGE, MLOCK_ONFAULT) == 0 && resident(a, 8) == 0);
	a[PAGE] = 1;
	CHECK(resident(a, 8) == 1);
	FAILS(EINVAL, madvise(a + PAGE, PAGE, MADV_DONTNEED));
	CHECK(mlock(a, 2 * PAGE) == 0 && resident(a, 8) == 2 && munlock(a, 8 * PAGE) == 0);
	CHECK(madvise(a, 8 * PAGE, MADV_DONTNEED) == 0 && resident(a, 8) == 0);
	FAILS(EINVAL, mlockall(MCL_ONFAULT));
	CHECK(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
	b = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
		 -1, 0);
	CHECK(resident(b, 8) == 0);
	b[0] = 1;
	FAILS(EINVAL, madvise(b, PAGE, MADV_DONTNEED));
	CHECK(mprotect(b, 8 * PAGE, PROT_READ) == 0);
	CHECK(mprotect(b, 8 * PAGE, PROT_READ | PROT_WRITE) == 0 && resident(b, 8) == 1);
	CHECK(munmap(b, 8 * PAGE) == 0 && madvise(a, PAGE, MADV_DONTNEED) == 0);
	/* What is there already alone is locked, and what comes is not any more. */
	CHECK(mlockall(MCL_CURRENT | MCL_ONFAULT) == 0 && resident(a, 8) == 0);
	FAILS(EINVAL, madvise(a, PAGE, MADV_DONTNEED));
	b = map(PAGE, PROT_READ | PROT_WRITE);
	b[0] = 1;
	CHECK(madvise(b, PAGE, MADV_DONTNEED) == 0 && munmap(b, PAGE) == 0);
	CHECK(munlockall() == 0 && madvise(a, PAGE, MADV_DONTNEED) == 0);
	CHECK(munmap(a, 8 * PAGE) == 0);
}

CASE(the_heap_grows_and_shrinks)
{
	char *start;

	start = sbrk(0);
	CHECK(sbrk(3 * PAGE) == start);
	memset(start, 'b', 3 * PAGE);
	CHECK(sbrk(0) == start + 3 * PAGE);
	CHECK(brk(start) == 0 && sbrk(0) == start);
	CHECK((char *)syscall(SYS_brk, -1L) == start);
	sbrk(3 * PAGE);
	/* The first page may have been in use before. */
	CHECK(start[2 * PAGE] == 0);
}

/* Writes to it do not reach the file. */
CASE(a_private_mapping_of_a_file_has_its_contents)
{
	char name[] = "/tmp/memory-XXXXXX", *a, *b;
	int fd = make_file(name);

	a = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(a != MAP_FAILED && memcmp(a + PAGE, "file", 4) == 0 && a[0] == 0 &&
	      a[3 * PAGE + 100] == 0);
	a[PAGE] = 'F';
	b = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, PAGE);
	CHECK(b != MAP_FAILED && memcmp(b, "file", 4) == 0 && touch(b, 1) == SIGSEGV);
	FAILS(EINVAL, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 1));
	CHECK(close(fd) == 0 && unlink(name) == 0 && munmap(a, 4 * PAGE) == 0 &&
	      munmap(b, PAGE) == 0);
}

CASE(files_that_cannot_be_read_are_not_mapped)
{
	char name[] = "/tmp/memory-XXXXXX";
	int fd = make_file(name);

	close(fd);
	fd = open(name, O_WRONLY);
	FAILS(EACCES, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
	close(fd);
	fd = open("/tmp", O_RDONLY);
	FAILS(ENODEV, mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0));
	unlink(name);
}

CASE(calls_take_no_longer_when_there_are_many_mappings)
{
	enum { MAPPINGS = 4000 };
	char *page = map(PAGE, PROT_READ), *others = map(MAPPINGS * PAGE, PROT_NONE);
	double alone = time_of_calls(page);

	for (int i = 0; i < MAPPINGS; i += 2)
		mprotect(others + i * PAGE, PAGE, PROT_READ);
	CHECK(time_of_calls(page) < 10 * alone);
	munmap(others, MAPPINGS * PAGE);
	munmap(page, PAGE);
}

/* Returns how long it takes to unmap some pages one by one, in seconds of the processor. */
static double time_of_unmapping(void)
{
	double least = 1e9, start;

	for (int round = 0; round < 10; round++) {
		char *area = map(40 * PAGE, PROT_READ);

		start = seconds();
		for (int i = 0; i < 20; i++)
			munmap(area + 2 * i * PAGE, PAGE);
		if (seconds() - start < least)
			least = seconds() - start;
		munmap(area, 40 * PAGE);
	}
	return least;
}

CASE(unmapping_takes_no_longer_among_many_mappings_of_which_one_is_shared)
{
	enum { MAPPINGS = 4000 };
	char *others = map(MAPPINGS * PAGE, PROT_NONE), *shared;
	int fd = memfd_create("shared", 0);
	double alone;

	CHECK(!ftruncate(fd, PAGE));
	shared = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	CHECK(shared != MAP_FAILED);
	alone = time_of_unmapping();
	for (int i = 0; i < MAPPINGS; i += 2)
		mprotect(others + i * PAGE, PAGE, PROT_READ);
	CHECK(time_of_unmapping() < 10 * alone);
	munmap(others, MAPPINGS * PAGE);
	munmap(shared, PAGE);
	close(fd);
}

CASE(addresses_of_nobody_raise_a_signal)
{
	CHECK(touch((char *)0, 0) == SIGSEGV);
	CHECK(touch((char *)0xffffffff80000000, 0) == SIGSEGV);
	CHECK(touch((char *)0x8000000000000000, 0) == SIGSEGV);
}

CASE(locked_memory_is_not_invalidated)
{
	char *a = map(3 * PAGE, PROT_READ | PROT_WRITE);

	CHECK(msync(a, 3 * PAGE, MS_SYNC | MS_INVALIDATE) == 0 && mlock(a + PAGE, PAGE) == 0);
	FAILS(EBUSY, msync(a, 3 * PAGE, MS_SYNC | MS_INVALIDATE));
	FAILS(EBUSY, msync(a + PAGE, PAGE, MS_INVALIDATE));
	CHECK(msync(a, PAGE, MS_INVALIDATE) == 0 && msync(a + 2 * PAGE, PAGE, MS_INVALIDATE) == 0);
	CHECK(msync(a, 3 * PAGE, MS_SYNC) == 0);
	CHECK(munlock(a, 3 * PAGE) == 0 && msync(a, 3 * PAGE, MS_SYNC | MS_INVALIDATE) == 0);
	munmap(a, 3 * PAGE);
}

/* Who may not write to /dev/zero does not get the right later. */
CASE(shared_zeros_are_written_by_who_may_write_the_file)
{
	int read_only = open("/dev/zero", O_RDONLY), both = open("/dev/zero", O_RDWR);
	char *a = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, read_only, 0), *b;

	CHECK(a != MAP_FAILED && !*a);
	FAILS(EACCES, mprotect(a, PAGE, PROT_READ | PROT_WRITE));
	b = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, both, 0);
	CHECK(b != MAP_FAILED && !mprotect(b, PAGE, PROT_READ | PROT_WRITE) && !*b);
	*b = 1;
	munmap(b, PAGE);
	b = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, read_only, 0);
	CHECK(b != MAP_FAILED && !mprotect(b, PAGE, PROT_READ | PROT_WRITE) && !*b);
	*b = 1;
	munmap(a, PAGE);
	munmap(b, PAGE);
	close(read_only);
	close(both);
}

CASE(zeros_know_no_flags_of_their_own)
{
	int zero = open("/dev/zero", O_RDWR);
	char *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE, zero, 0);
	int none = MAP_SHARED_VALIDATE | MAP_ANONYMOUS;

	CHECK(shared != MAP_FAILED && (shared[0] = 1) == 1 && munmap(shared, PAGE) == 0);
	FAILS(EOPNOTSUPP, (long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC,
				     zero, 0));
	FAILS(EINVAL, (long)mmap(NULL, PAGE, PROT_READ, none, -1, 0));
	CHECK(close(zero) == 0);
}

CASE(no_zeros_of_a_file_grow_down)
{
	const int grows = MAP_GROWSDOWN, rights = PROT_READ | PROT_WRITE;
	int zero = open("/dev/zero", O_RDWR), reader = open("/dev/zero", O_RDONLY);
	int writer = open("/dev/zero", O_WRONLY);

	FAILS(EINVAL, (long)mmap(NULL, PAGE, rights, MAP_PRIVATE | grows, zero, 0));
	FAILS(EINVAL, (long)mmap(NULL, PAGE, rights, MAP_SHARED | grows, zero, 0));
	FAILS(EACCES, (long)mmap(NULL, PAGE, rights, MAP_SHARED | grows, reader, 0));
	FAILS(EACCES, (long)mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | grows, writer, 0));
	FAILS(EINVAL, (long)mmap(NULL, PAGE, rights, MAP_SHARED | MAP_ANONYMOUS | grows, -1, 0));
	close(zero);
	close(reader);
	close(writer);
}

/* As if the file had as many bytes as are mapped. */
CASE(shared_zeros_have_an_end)
{
	const int rights = PROT_READ | PROT_WRITE;
	int zero = open("/dev/zero", O_RDWR);
	char *shared = mmap(NULL, 2 * PAGE, rights, MAP_SHARED, zero, PAGE);
	char *own = mmap(NULL, 2 * PAGE, rights, MAP_PRIVATE, zero, 16 * PAGE);

	CHECK(shared != MAP_FAILED && own != MAP_FAILED);
	CHECK(touch(shared, 1) == 0 && touch(shared + PAGE, 1) == SIGBUS);
	CHECK(touch(own, 1) == 0 && touch(own + PAGE, 1) == 0);
	FAILS(EOVERFLOW, (long)mmap(NULL, PAGE, rights, MAP_PRIVATE, zero, -PAGE));
	FAILS(EOVERFLOW, (long)mmap(NULL, PAGE, rights, MAP_SHARED, zero, -PAGE));
	CHECK(munmap(shared, 2 * PAGE) == 0 && munmap(own, 2 * PAGE) == 0 && close(zero) == 0);
}

CASE(shared_memory_has_no_more_where_its_mapping_becomes_longer)
{
	const int rights = PROT_READ | PROT_WRITE;
	char *a = mmap(NULL, 2 * PAGE, rights, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *b;

	a[PAGE] = 'a';
	a = mremap(a, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE);
	CHECK(a != MAP_FAILED && a[PAGE] == 'a' && touch(a + 2 * PAGE, 1) == SIGBUS);
	b = mremap(a, 0, 4 * PAGE, MREMAP_MAYMOVE);
	CHECK(b != MAP_FAILED && b[PAGE] == 'a' && touch(b + 3 * PAGE, 0) == SIGBUS);
	FAILS(EFAULT, madvise(a, 4 * PAGE, MADV_POPULATE_WRITE));
	FAILS(ENOMEM, mlock(a, 4 * PAGE));
	CHECK(munmap(a, 4 * PAGE) == 0 && munmap(b, 4 * PAGE) == 0);
}

CASE(what_moves_onto_itself_is_refused_before_a_hole)
{
	const int moves = MREMAP_MAYMOVE | MREMAP_FIXED;
	char *area = map(4 * PAGE, PROT_READ);

	CHECK(munmap(area + PAGE, PAGE) == 0);
	FAILS(EINVAL, (long)mremap(area, 3 * PAGE, 3 * PAGE, moves, area + PAGE));
	FAILS(EFAULT, (long)mremap(area + PAGE, PAGE, PAGE, moves, area + 3 * PAGE));
	munmap(area, 4 * PAGE);
}

/* Unless nothing begins there, or the target cannot be one. */
CASE(what_cannot_be_moved_has_made_room)
{
	const int moves = MREMAP_MAYMOVE | MREMAP_FIXED;
	char *area = map(4 * PAGE, PROT_READ), *target = map(4 * PAGE, PROT_READ);

	CHECK(munmap(area + PAGE, PAGE) == 0);
	FAILS(EFAULT, (long)mremap(area + PAGE, PAGE, PAGE, moves, target));
	FAILS(EINVAL, (long)mremap(area, PAGE, PAGE, moves, at(0x7ffffffff000)));
	CHECK(touch(target, 0) == 0);
	FAILS(EFAULT, (long)mremap(area, 3 * PAGE, 3 * PAGE, moves, target));
	CHECK(touch(target, 0) == SIGSEGV && touch(target + 2 * PAGE, 0) == SIGSEGV);
	CHECK(touch(target + 3 * PAGE, 0) == 0 && touch(area, 0) == 0);
	/* What is private is not mapped a second time. */
	FAILS(EINVAL, (long)mremap(area, 0, PAGE, moves, target + 3 * PAGE));
	CHECK(touch(target + 3 * PAGE, 0) == SIGSEGV && munmap(area, 4 * PAGE) == 0);
}

/* Who has as many mappings as there can be can take them back. */
CASE(no_mapping_is_one_too_many_to_be_unmapped)
{
	enum { MOST = 65530 };
	char *a = mmap(NULL, 2 * (MOST + 1) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t count = 0;

	CHECK(a != MAP_FAILED);
	while (count < MOST && mprotect(a + 2 * count * PAGE, PAGE, PROT_READ) == 0)
		count++;
	CHECK(count > MOST / 2 - 100 && count < MOST && errno == ENOMEM);
	CHECK(munmap(a, PAGE) == 0 && munmap(a + 2 * PAGE, PAGE) == 0);
	CHECK(mprotect(a + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(munmap(a, 2 * (MOST + 1) * PAGE) == 0);
}
