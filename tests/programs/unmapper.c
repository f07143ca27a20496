// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Has Linux write pages to a file, and unmaps them one by one.
 *
 * unmapper FILE PAGES		each before the next one is mapped; prints how many microseconds
 *				the longest munmap() took, and ends with 3 if a write failed: then
 *				it may be unable to print
 * unmapper FILE PAGES hold	the same, and before it ends it waits for the end of its input
 * unmapper FILE PAGES PORT	all of them before the first one is unmapped; then one every 10 ms,
 *				with a U to the port for each and an E for ever at the end
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/io.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static int file;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* A page at `place` that Linux was to write; counts in *failed if it did not. */
static char *map(char *place, int *failed)
{
	char *page = mmap(place, PAGE, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	if (page == MAP_FAILED)
		fail("unmapper: mmap");
	page[0] = 1;
	*failed += pwrite(file, page, PAGE, 0) != PAGE;
	return page;
}

/*
 * Addresses for so many pages. At one where it still has a page, Linux would not ask for the next:
 * each has its own.
 */
static char *places(int pages)
{
	char *area = mmap(NULL, (size_t)pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			  0);

	if (area == MAP_FAILED)
		fail("unmapper: mmap");
	return area;
}

static long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000 + time.tv_nsec / 1000;
}

static int each(int pages)
{
	long begun, took, longest = 0;
	char *area = places(pages);
	int failed = 0;

	for (int i = 0; i < pages; i++) {
		char *page = map(area + (size_t)i * PAGE, &failed);

		begun = now();
		if (munmap(page, PAGE))
			fail("unmapper: munmap");
		took = now() - begun;
		if (took > longest)
			longest = took;
	}
	printf("%ld\n", longest);
	return failed ? 3 : 0;
}

static void at_last(int pages, int port)
{
	struct timespec pause = { .tv_nsec = 10000000 };
	char *area = places(pages);
	int failed = 0;

	if (ioperm(port, 1, 1))
		fail("unmapper: ioperm");
	for (int i = 0; i < pages; i++)
		map(area + (size_t)i * PAGE, &failed);
	if (failed) {
		fprintf(stderr, "unmapper: %d writes failed\n", failed);
		exit(1);
	}
	for (int i = 0;; i++) {
		outb(i < pages ? 'U' : 'E', port);
		if (i < pages && munmap(area + (size_t)i * PAGE, PAGE))
			fail("unmapper: munmap");
		nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	int status;

	if (argc < 3)
		return 2;
	file = open(argv[1], O_CREAT | O_WRONLY, 0600);
	if (file < 0)
		fail(argv[1]);
	if (argc > 3 && strcmp(argv[3], "hold") != 0)
		at_last(atoi(argv[2]), strtol(argv[3], NULL, 0));
	status = each(atoi(argv[2]));
	fflush(stdout);
	while (argc > 3 && getchar() != EOF)
		;
	return status;
}
