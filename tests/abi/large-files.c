// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Large mappings of files: larger than memory, touched first by the program or by Linux, by threads
 * or by a child, populated at once, of files that change, are cut short or are closed.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"
#include "children.h"
#include "touch.h"

#define LENGTH (24UL << 20)
#define PAGES (LENGTH / PAGE)
/* Larger than the memory of the realm. */
#define HUGE (640UL << 20)
/* Larger than any memory. */
#define MUCH (300UL << 30)

static unsigned char page_of(size_t page)
{
	return page * 7 + page / 256 + 1;
}

/* Tells whether a page shows what the file has. */
static int shows(const unsigned char *map, size_t page)
{
	const unsigned char *bytes = map + page * PAGE;

	return bytes[0] == page_of(page) && bytes[PAGE - 1] == page_of(page);
}

/* Makes a file without a name that has a different byte in each page. */
static int make(size_t pages)
{
	static char bytes[128 * PAGE];
	char path[] = "large-XXXXXX";
	int fd = mkstemp(path), failed = fd < 0;
	size_t some;

	for (size_t page = 0; page < pages && !failed; page += some) {
		some = pages - page < 128 ? pages - page : 128;
		for (size_t at = 0; at < some; at++)
			memset(bytes + at * PAGE, page_of(page + at), PAGE);
		failed = write(fd, bytes, some * PAGE) != (ssize_t)(some * PAGE);
	}
	unlink(path);
	return failed ? -1 : fd;
}

static unsigned char *map(int fd, int kind)
{
	void *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, kind, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

/*
 * Has Linux read from pages, and write to some, that nobody has touched. Tells whether all is well.
 */
static int used_by_linux(unsigned char *map, size_t first)
{
	unsigned char back[8 * PAGE] = { 0 };
	int fd = make(0), well;

	well = write(fd, map + first * PAGE, sizeof(back)) == sizeof(back);
	well &= pread(fd, back, sizeof(back), 0) == sizeof(back);
	for (size_t page = 0; page < 8; page++)
		well &= back[page * PAGE] == page_of(first + page) &&
			back[page * PAGE + PAGE - 1] == page_of(first + page);
	/* From the middle of a page to the middle of another. */
	well &= pread(fd, map + (first + 100) * PAGE + 5, 2 * PAGE, 0) == 2 * PAGE;
	well &= map[(first + 100) * PAGE + 4] == page_of(first + 100) &&
		map[(first + 100) * PAGE + 5] == page_of(first);
	well &= map[(first + 102) * PAGE + 4] == page_of(first + 1) &&
		map[(first + 102) * PAGE + 5] == page_of(first + 102);
	close(fd);
	return well;
}

struct walk {
	unsigned char *map;
	unsigned int seed;
};

static void *walk(void *argument)
{
	struct walk *walk = argument;
	intptr_t wrong = 0;

	for (int i = 0; i < 2000; i++) {
		walk->seed = walk->seed * 1103515245 + 12345;
		wrong += !shows(walk->map, 100 + walk->seed / 65536 % 1300);
	}
	return (void *)wrong;
}

static long in_threads(unsigned char *map)
{
	pthread_t threads[3];
	struct walk walks[3];
	void *result;
	long wrong = 0;

	for (int i = 0; i < 3; i++) {
		walks[i] = (struct walk) { map, i * 77 };
		wrong += pthread_create(&threads[i], NULL, walk, &walks[i]) != 0;
	}
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], &result);
		wrong += (intptr_t)result;
	}
	return wrong;
}

/* Tells whether all pages show what the file has; looks at some of them. */
static int shows_all(unsigned char *map)
{
	long wrong = 0;

	for (size_t page = 0; page < PAGES; page += 61)
		wrong += !shows(map, page);
	return !wrong;
}

BEFORE_EACH
{
	signal(SIGBUS, caught);
	signal(SIGSEGV, caught);
}

CASE(a_mapping_may_be_larger_than_memory)
{
	unsigned char *own, byte;
	int fd;

	fd = make(0);
	CHECK(ftruncate(fd, HUGE) == 0 && pwrite(fd, "start", 5, 0) == 5 &&
	      pwrite(fd, "middle", 6, HUGE / 2) == 6 && pwrite(fd, "end", 3, HUGE - 3) == 3);
	own = mmap(NULL, HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(own != MAP_FAILED && !memcmp(own, "start", 5) &&
	      !memcmp(own + HUGE / 2, "middle", 6) && !memcmp(own + HUGE - 3, "end", 3));
	CHECK(own[PAGE] == 0 && own[HUGE / 4] == 0);
	own[HUGE / 4] = 1;
	CHECK(pread(fd, &byte, 1, HUGE / 4) == 1 && byte == 0 && munmap(own, HUGE) == 0 &&
	      close(fd) == 0);
}

/* Changes of a shared mapping reach the file. */
/* Databases map more than they will ever need. */
static void maps_much(int fd)
{
	const uint64_t places[] = { 0, MUCH / 2 + 5, MUCH - 1 };
	unsigned char *map, byte;

	CHECK(fd >= 0 && ftruncate(fd, MUCH) == 0);
	map = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(map != MAP_FAILED);
	for (int i = 0; i < 3; i++) {
		CHECK(map[places[i]] == 0);
		map[places[i]] = i + 1;
	}
	CHECK(msync(map, MUCH, MS_SYNC) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(pread(fd, &byte, 1, places[i]) == 1 && byte == i + 1);
	byte = 9;
	CHECK(pwrite(fd, &byte, 1, MUCH - 1) == 1 && map[MUCH - 1] == 9);
	CHECK(munmap(map + PAGE, MUCH - 2 * PAGE) == 0 && map[0] == 1 && map[MUCH - 1] == 9);
	CHECK(munmap(map, PAGE) == 0 && munmap(map + MUCH - PAGE, PAGE) == 0 && close(fd) == 0);
}

CASE(a_mapping_may_have_hundreds_of_gigabytes)
{
	char path[] = "large-XXXXXX";
	int fd = mkstemp(path);

	unlink(path);
	maps_much(fd);
	maps_much(memfd_create("large", 0));
}

CASE(changes_of_a_private_mapping_stay_there)
{
	unsigned char *own, *shared, byte;
	int fd;

	fd = make(PAGES);
	own = map(fd, MAP_PRIVATE);
	shared = map(fd, MAP_SHARED);
	CHECK(own && shared && shows(own, 0) && shows(own, PAGES - 1) && shows(shared, 1000) &&
	      shows(own, 1001));
	memset(own + 3000 * PAGE, 0, PAGE);
	memset(shared + 3001 * PAGE, 0, PAGE);
	CHECK(own[3000 * PAGE] == 0 && shows(shared, 3000) && shared[3001 * PAGE] == 0);
	CHECK(pread(fd, &byte, 1, 3000 * PAGE) == 1 && byte == page_of(3000));
	CHECK(msync(shared, LENGTH, MS_SYNC) == 0 && pread(fd, &byte, 1, 3001 * PAGE) == 1 &&
	      byte == 0);
	memset(shared + 3001 * PAGE, page_of(3001), PAGE);
	CHECK(close(fd) == 0);
	CHECK(munmap(own, LENGTH) == 0 && munmap(shared, LENGTH) == 0);
}

CASE(linux_uses_pages_that_nobody_has_touched)
{
	unsigned char *own, *shared;
	int fd;

	fd = make(PAGES);
	own = map(fd, MAP_PRIVATE);
	shared = map(fd, MAP_SHARED);
	CHECK(own && shared && close(fd) == 0);
	CHECK(used_by_linux(own, 4096) && used_by_linux(shared, 5000));
	CHECK(munmap(own, LENGTH) == 0 && munmap(shared, LENGTH) == 0);
}

CASE(threads_touch_pages_at_once)
{
	unsigned char *own, *shared;
	int fd;

	fd = make(PAGES);
	own = map(fd, MAP_PRIVATE);
	shared = map(fd, MAP_SHARED);
	CHECK(own && shared && close(fd) == 0);
	CHECK(in_threads(own) == 0 && in_threads(shared) == 0);
	CHECK(munmap(own, LENGTH) == 0 && munmap(shared, LENGTH) == 0);
}

/* The child sees the private page that the parent has changed. */
CASE(a_child_has_the_mappings)
{
	unsigned char *own, *shared;
	int fd;
	pid_t child;

	fd = make(PAGES);
	own = map(fd, MAP_PRIVATE);
	shared = map(fd, MAP_SHARED);
	CHECK(own && shared && close(fd) == 0);
	memset(own + 3000 * PAGE, 0, PAGE);
	child = fork();
	if (!child) {
		int well = shows(own, 1500) && shows(shared, 1501) && used_by_linux(own, 1510) &&
			   own[3000 * PAGE] == 0;

		shared[1650 * PAGE] = 'c';
		own[1600 * PAGE] = 'c';
		_exit(!well);
	}
	CHECK(status_of(child) == 0 && shared[1650 * PAGE] == 'c' && shows(own, 1600));
	CHECK(munmap(own, LENGTH) == 0 && munmap(shared, LENGTH) == 0);
}

CASE(a_child_of_vfork_touches_the_mapping)
{
	unsigned char *own, *shared;
	int fd;
	pid_t child;

	fd = make(PAGES);
	own = map(fd, MAP_PRIVATE);
	shared = map(fd, MAP_SHARED);
	CHECK(own && shared && close(fd) == 0);
	child = vfork();
	if (!child)
		_exit(!shows(own, 1700));
	CHECK(status_of(child) == 0);
	CHECK(munmap(own, LENGTH) == 0 && munmap(shared, LENGTH) == 0);
}

CASE(a_mapping_can_be_protected)
{
	unsigned char *own, *shared;
	int fd;

	fd = make(PAGES);
	own = map(fd, MAP_PRIVATE);
	shared = map(fd, MAP_SHARED);
	CHECK(own && shared && close(fd) == 0);
	CHECK(mprotect(own + 200 * PAGE, 200 * PAGE, PROT_NONE) == 0 &&
	      touch((char *)own + 300 * PAGE, 0) == SIGSEGV);
	CHECK(mprotect(own + 200 * PAGE, 200 * PAGE, PROT_READ) == 0 && shows(own, 300) &&
	      touch((char *)own + 300 * PAGE, 1) == SIGSEGV);
	CHECK(munmap(own, LENGTH) == 0 && munmap(shared, LENGTH) == 0);
}

CASE(a_part_goes_and_the_rest_moves)
{
	unsigned char *own, *shared, *other;
	int fd;

	fd = make(PAGES);
	own = map(fd, MAP_PRIVATE);
	shared = map(fd, MAP_SHARED);
	CHECK(own && shared && close(fd) == 0);
	CHECK(munmap(own + 2000 * PAGE, 10 * PAGE) == 0 &&
	      touch((char *)own + 2005 * PAGE, 0) == SIGSEGV && shows(own, 1999) &&
	      shows(own, 2010));
	other = mmap(NULL, 500 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mremap(own + 5500 * PAGE, 500 * PAGE, 500 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		     other) == other);
	CHECK(other[0] == page_of(5500) && other[499 * PAGE] == page_of(5999));
	CHECK(munmap(other, 500 * PAGE) == 0 && munmap(own, LENGTH) == 0 &&
	      munmap(shared, LENGTH) == 0);
}

/* A page that the program has touched stays, and so does the rest of the file. */
CASE(what_is_cut_off_the_file_is_gone)
{
	unsigned char *own;
	int fd, ends[2];

	CHECK(pipe(ends) == 0);
	fd = make(PAGES);
	own = map(fd, MAP_PRIVATE);
	CHECK(shows(own, 10) && ftruncate(fd, LENGTH / 2) == 0);
	CHECK(touch((char *)own + LENGTH - PAGE, 0) == SIGBUS && shows(own, PAGES / 2 - 1) &&
	      shows(own, 11));
	FAILS(EFAULT, write(ends[1], own + LENGTH - PAGE, PAGE));
	CHECK(ftruncate(fd, LENGTH) == 0 && own[LENGTH - PAGE] == 0 && munmap(own, LENGTH) == 0 &&
	      close(fd) == 0);
}

CASE(populated_mappings_show_all_pages)
{
	unsigned char *own;
	int fd;

	fd = make(PAGES);
	own = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	CHECK(own != MAP_FAILED && shows_all(own) && munmap(own, LENGTH) == 0);
	own = map(fd, MAP_PRIVATE);
	CHECK(madvise(own, LENGTH, MADV_POPULATE_READ) == 0 && shows_all(own) &&
	      munmap(own, LENGTH) == 0);
	own = map(fd, MAP_PRIVATE);
	CHECK(mlockall(MCL_CURRENT) == 0 && shows_all(own) && munlockall() == 0);
	CHECK(munmap(own, LENGTH) == 0 && close(fd) == 0);
}

CASE(pages_that_are_given_up_show_the_file_again)
{
	unsigned char *own;
	int fd;

	fd = make(PAGES);
	own = map(fd, MAP_PRIVATE);
	CHECK(mlockall(MCL_CURRENT) == 0 && munlockall() == 0);
	own[50 * PAGE] = 0;
	CHECK(madvise(own, LENGTH, MADV_DONTNEED) == 0 && shows(own, 50) &&
	      munmap(own, LENGTH) == 0 && close(fd) == 0);
}

CASE(shared_memory_can_have_holes)
{
	unsigned char *shared;
	int fd;

	fd = memfd_create("large", 0);
	CHECK(fd >= 0 && ftruncate(fd, LENGTH) == 0 && pwrite(fd, "here", 5, 400 * PAGE) == 5 &&
	      pwrite(fd, "there", 6, 500 * PAGE) == 6);
	shared = map(fd, MAP_SHARED);
	CHECK(shared && !strcmp((char *)shared + 400 * PAGE, "here") && shared[401 * PAGE] == 0);
	CHECK(madvise(shared + 400 * PAGE, 101 * PAGE, MADV_REMOVE) == 0 &&
	      shared[400 * PAGE] == 0 && shared[500 * PAGE] == 0);
	CHECK(munmap(shared, LENGTH) == 0 && close(fd) == 0);
}
