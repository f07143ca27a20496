// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * How late a thread is done that wakes every 100 us, has memory locked, and shares its program with
 * a thread of ordinary priority on the same CPU that changes memory all the time, 256 MiB of it.
 * After each wake-up it touches a page for the first time and wakes nobody at a futex that other
 * processes could wait at: both need what is known of the program's memory. A sample is the latest
 * of 100 wake-ups.
 *
 *   beside-nothing  the neighbour computes
 *   beside-map      mmap of locked memory, munmap
 *   beside-protect  mprotect
 *   beside-move     mremap to another place
 *   beside-replace  mmap over what is there, each page of which has been touched
 *   beside-share    mmap of shared memory, munmap
 *   beside-lock     munlockall, mlockall
 *   beside-discard  madvise(MADV_DONTNEED), a write to each page
 *   beside-fork     fork; the child ends
 *   beside-thread   a thread with a stack of 8 MiB starts and ends
 */
#include "threads.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define SIZE (256ul << 20)
#define PAGE 4096
/* Memory of a process that forks: the child has a copy of it. */
#define FORKED (96ul << 20)
/* Wake-ups in a sample. */
#define BATCH 100
#define PERIOD_NS 100000

static _Atomic int done;

static char *map(size_t size, int flags)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap");
	return memory;
}

static void touch(char *memory)
{
	for (size_t at = 0; at < SIZE; at += PAGE)
		((volatile char *)memory)[at] = 1;
}

static void beside_nothing(void)
{
}

static void beside_map(void)
{
	munmap(map(SIZE, MAP_PRIVATE | MAP_LOCKED), SIZE);
}

static char *changed;

static void beside_protect(void)
{
	if (mprotect(changed, SIZE, PROT_READ) || mprotect(changed, SIZE, PROT_READ | PROT_WRITE))
		fail("mprotect");
}

static void beside_move(void)
{
	char *place = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (place == MAP_FAILED)
		fail("mmap");
	changed = mremap(changed, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
	if (changed == MAP_FAILED)
		fail("mremap");
}

static void beside_replace(void)
{
	if (mmap(changed, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		fail("mmap");
	touch(changed);
}

static void beside_share(void)
{
	munmap(map(SIZE, MAP_SHARED | MAP_POPULATE), SIZE);
}

static void beside_lock(void)
{
	if (munlockall() || mlockall(MCL_CURRENT))
		fail("mlockall");
}

static void beside_discard(void)
{
	if (madvise(changed, SIZE, MADV_DONTNEED))
		fail("madvise");
	touch(changed);
}

static void beside_fork(void)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(0);
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		fail("fork");
}

static void *nothing(void *unused)
{
	return unused;
}

static void beside_thread(void)
{
	join(start(nothing));
}

static const struct {
	const char *figure;
	void (*act)(void);
	size_t size;		/* memory that is there before, touched */
} figures[] = {
	{ "beside-nothing", beside_nothing, 0 },
	{ "beside-map", beside_map, 0 },
	{ "beside-protect", beside_protect, SIZE },
	{ "beside-move", beside_move, SIZE },
	{ "beside-replace", beside_replace, SIZE },
	{ "beside-share", beside_share, 0 },
	{ "beside-lock", beside_lock, SIZE },
	{ "beside-discard", beside_discard, SIZE },
	{ "beside-fork", beside_fork, FORKED },
	{ "beside-thread", beside_thread, 0 },
};

/* Memory of which a page is touched after each wake-up, and a futex that other processes share. */
static char *fresh;
static uint32_t *futex;

static void *periodic(void *unused)
{
	struct timespec deadline;

	set_priority(HIGH);
	clock_gettime(CLOCK_MONOTONIC, &deadline);
	for (long round = -WARM_UP; round < options.samples; round++) {
		uint64_t worst = 0;

		for (int turn = 0; turn < BATCH; turn++) {
			uint64_t due, late;

			deadline.tv_nsec += PERIOD_NS;
			if (deadline.tv_nsec >= 1000000000) {
				deadline.tv_nsec -= 1000000000;
				deadline.tv_sec++;
			}
			due = (uint64_t)deadline.tv_sec * 1000000000 + (uint64_t)deadline.tv_nsec;
			if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL))
				fail("clock_nanosleep");
			*(volatile char *)fresh = 1;
			fresh += PAGE;
			if (syscall(SYS_futex, futex, FUTEX_WAKE, 1, NULL, NULL, 0) != 0)
				fail("futex");
			late = nanoseconds(CLOCK_MONOTONIC) - due;
			worst = late > worst ? late : worst;
		}
		sample(round, worst);
	}
	atomic_store(&done, 1);
	return unused;
}

int main(int argc, char **argv)
{
	size_t touched, which = 0;
	pthread_t thread;

	begin(argc, argv);
	while (which < sizeof(figures) / sizeof(*figures) && !wants(figures[which].figure))
		which++;
	if (which == sizeof(figures) / sizeof(*figures))
		return unknown();
	touched = (size_t)(options.samples + WARM_UP) * BATCH * PAGE;
	fresh = map(touched, MAP_PRIVATE);
	futex = (uint32_t *)(void *)map(PAGE, MAP_SHARED);
	if (munlock(fresh, touched) || madvise(fresh, touched, MADV_DONTNEED))
		fail("memory to be touched");
	if (figures[which].size) {
		changed = map(figures[which].size, MAP_PRIVATE);
		memset(changed, 1, figures[which].size);
	}
	thread = start(periodic);
	while (!atomic_load(&done))
		figures[which].act();
	join(thread);
	return report_in(1000);
}
