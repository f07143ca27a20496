// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * neighbour WHAT [all]: how late a thread is done that wakes every 100 us, has memory locked, and
 * shares its program with a thread of ordinary priority on the same CPU that changes memory all the
 * time, 256 MiB of it. After each wake-up it touches a page for the first time and wakes nobody at
 * a futex that other processes could wait at: both need what is known of the program's memory.
 * Prints the latest of 2000 wake-ups in nanoseconds, or with `all` each one, in the order of time.
 *
 *   nothing  the neighbour computes
 *   map      mmap of locked memory, munmap
 *   protect  mprotect
 *   move     mremap to another place
 *   replace  mmap over what is there, each page of which has been touched
 *   share    mmap of shared memory, munmap
 *   lock     munlockall, mlockall; the pages that the other one touches go in between
 *   discard  madvise(MADV_DONTNEED), a write to each page
 *   fork     fork, the end of the child
 *   thread   pthread_create with that much stack, the end of the thread
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WARM_UP 20
#define WAKE_UPS 2000
#define SIZE (256ul << 20)
#define PAGE 4096ul
#define HIGHEST 80
#define PERIOD_NS 100000

static atomic_int done;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

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

static void nothing(void)
{
}

static void map_locked(void)
{
	munmap(map(SIZE, MAP_PRIVATE | MAP_LOCKED), SIZE);
}

static char *changed;

static void protect(void)
{
	if (mprotect(changed, SIZE, PROT_READ) || mprotect(changed, SIZE, PROT_READ | PROT_WRITE))
		fail("mprotect");
}

static void move(void)
{
	char *place = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (place == MAP_FAILED)
		fail("mmap");
	changed = mremap(changed, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
	if (changed == MAP_FAILED)
		fail("mremap");
}

static void replace(void)
{
	if (mmap(changed, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		fail("mmap");
	touch(changed);
}

static void share(void)
{
	munmap(map(SIZE, MAP_SHARED | MAP_POPULATE), SIZE);
}

/* Memory of which a page is touched after each wake-up, and a futex that other processes share. */
static char *fresh;
static const size_t touched = (WARM_UP + WAKE_UPS) * PAGE;
static uint32_t *futex;

static void lock(void)
{
	if (munlockall() || madvise(fresh, touched, MADV_DONTNEED) || mlockall(MCL_CURRENT))
		fail("mlockall");
}

static void discard(void)
{
	if (madvise(changed, SIZE, MADV_DONTNEED))
		fail("madvise");
	touch(changed);
}

static void fork_and_wait(void)
{
	const pid_t child = fork();
	int status;

	if (child < 0)
		fail("fork");
	if (child == 0)
		_exit(0);
	if (waitpid(child, &status, 0) != child || status)
		fail("waitpid");
}

static void *end(void *unused)
{
	return unused;
}

static void start_thread(void)
{
	pthread_attr_t attributes;
	pthread_t thread;

	errno = pthread_attr_init(&attributes);
	if (!errno)
		errno = pthread_attr_setstacksize(&attributes, SIZE);
	if (!errno)
		errno = pthread_create(&thread, &attributes, end, NULL);
	if (!errno)
		errno = pthread_join(thread, NULL);
	if (errno)
		fail("thread");
	pthread_attr_destroy(&attributes);
}

static const struct {
	const char *what;
	void (*act)(void);
	size_t size;		/* memory that is there before, touched */
} neighbours[] = {
	{ "nothing", nothing, 0 },
	{ "map", map_locked, 0 },
	{ "protect", protect, SIZE },
	{ "move", move, SIZE },
	{ "replace", replace, SIZE },
	{ "share", share, 0 },
	{ "lock", lock, SIZE },
	{ "discard", discard, SIZE },
	{ "fork", fork_and_wait, SIZE },
	{ "thread", start_thread, 0 },
};

static uint64_t late[WARM_UP + WAKE_UPS];

static uint64_t nanoseconds(struct timespec time)
{
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void *periodic(void *unused)
{
	const struct sched_param highest = { .sched_priority = HIGHEST };
	struct timespec deadline, now;
	volatile char *next = fresh;

	if (sched_setscheduler(0, SCHED_FIFO, &highest))
		fail("sched_setscheduler");
	clock_gettime(CLOCK_MONOTONIC, &deadline);
	for (int turn = 0; turn < WARM_UP + WAKE_UPS; turn++) {
		deadline.tv_nsec += PERIOD_NS;
		if (deadline.tv_nsec >= 1000000000) {
			deadline.tv_nsec -= 1000000000;
			deadline.tv_sec++;
		}
		if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL))
			fail("clock_nanosleep");
		*next = 1;
		next += PAGE;
		if (syscall(SYS_futex, futex, FUTEX_WAKE, 1, NULL, NULL, 0) != 0)
			fail("futex");
		clock_gettime(CLOCK_MONOTONIC, &now);
		late[turn] = nanoseconds(now) - nanoseconds(deadline);
	}
	atomic_store(&done, 1);
	return unused;
}

int main(int argc, char **argv)
{
	const size_t count = sizeof(neighbours) / sizeof(*neighbours);
	const int all = argc == 3 && !strcmp(argv[2], "all");
	size_t which = 0;
	uint64_t latest = 0;
	pthread_t thread;

	while (which < count && (argc < 2 || strcmp(argv[1], neighbours[which].what)))
		which++;
	if (which == count || argc > 2 + all) {
		fprintf(stderr, "usage: neighbour WHAT [all]\n");
		return 2;
	}
	if (mlockall(MCL_CURRENT | MCL_FUTURE))
		fail("mlockall");
	fresh = map(touched, MAP_PRIVATE);
	futex = (uint32_t *)(void *)map(PAGE, MAP_SHARED);
	if (munlock(fresh, touched) || madvise(fresh, touched, MADV_DONTNEED))
		fail("memory to be touched");
	if (neighbours[which].size) {
		changed = map(neighbours[which].size, MAP_PRIVATE);
		touch(changed);
		/* What is locked is not discarded. */
		if (neighbours[which].act == discard && munlock(changed, SIZE))
			fail("munlock");
	}
	if (pthread_create(&thread, NULL, periodic, NULL))
		fail("pthread_create");
	while (!atomic_load(&done))
		neighbours[which].act();
	pthread_join(thread, NULL);
	for (int turn = all ? 0 : WARM_UP; turn < WARM_UP + WAKE_UPS; turn++) {
		if (all)
			printf("%llu\n", (unsigned long long)late[turn]);
		else if (late[turn] > latest)
			latest = late[turn];
	}
	if (!all)
		printf("%llu\n", (unsigned long long)latest);
	return 0;
}
