// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Limits of what a process may map, RLIMIT_AS and RLIMIT_DATA, and lock, RLIMIT_MEMLOCK.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "check.h"
#include "children.h"

#define MIB (1L << 20)
/* What the program has mapped anyway is less. */
#define LIMIT (64 * MIB)

/* Limits the soft one; the hard one stays. */
static void limit(int resource, rlim_t soft)
{
	struct rlimit limit;

	CHECK(getrlimit(resource, &limit) == 0);
	limit.rlim_cur = soft;
	CHECK(setrlimit(resource, &limit) == 0);
}

static rlim_t soft(int resource)
{
	struct rlimit limit;

	CHECK(getrlimit(resource, &limit) == 0);
	return limit.rlim_cur;
}

static void *map(long bytes, int rights, int flags)
{
	return mmap(NULL, bytes, rights, flags | MAP_ANONYMOUS, -1, 0);
}

static void *mapped(long bytes, int rights, int flags)
{
	void *memory = map(bytes, rights, flags);

	CHECK(memory != MAP_FAILED);
	return memory;
}

#define MEMORY (PROT_READ | PROT_WRITE), MAP_PRIVATE
#define REFUSED(call) FAILS(ENOMEM, (call) == MAP_FAILED ? -1 : 0)

BEFORE_EACH
{
	limit(RLIMIT_AS, RLIM_INFINITY);
	limit(RLIMIT_DATA, RLIM_INFINITY);
}

CASE(a_limit_is_told_as_it_was_set)
{
	struct rlimit before, now, none = { RLIM_INFINITY, RLIM_INFINITY };

	CHECK(soft(RLIMIT_AS) == RLIM_INFINITY && soft(RLIMIT_DATA) == RLIM_INFINITY);
	limit(RLIMIT_AS, LIMIT + 1);
	limit(RLIMIT_DATA, LIMIT + 2);
	CHECK(soft(RLIMIT_AS) == LIMIT + 1 && soft(RLIMIT_DATA) == LIMIT + 2);
	CHECK(prlimit(0, RLIMIT_AS, &none, &before) == 0 && before.rlim_cur == LIMIT + 1);
	CHECK(prlimit(getpid(), RLIMIT_DATA, NULL, &now) == 0 && now.rlim_cur == LIMIT + 2);
	now = (struct rlimit){ LIMIT, LIMIT - 1 };
	FAILS(EINVAL, setrlimit(RLIMIT_AS, &now));
	FAILS(EINVAL, prlimit(0, RLIMIT_DATA, &now, NULL));
	FAILS(EFAULT, syscall(SYS_setrlimit, RLIMIT_AS, 8));
	FAILS(EFAULT, syscall(SYS_getrlimit, RLIMIT_AS, 8));
	FAILS(EFAULT, syscall(SYS_prlimit64, 0, RLIMIT_AS, 8, NULL));
	CHECK(soft(RLIMIT_AS) == RLIM_INFINITY);
}

CASE(no_more_than_the_limit_is_mapped)
{
	char *half, *again;

	limit(RLIMIT_AS, LIMIT);
	REFUSED(map(LIMIT, MEMORY));
	REFUSED(map(LIMIT, PROT_NONE, MAP_PRIVATE));
	REFUSED(map(LIMIT, PROT_READ | PROT_WRITE, MAP_SHARED));
	half = mapped(LIMIT / 2, MEMORY);
	REFUSED(map(LIMIT / 2, MEMORY));
	/* What takes the place of something counts once. */
	again = mmap(half, LIMIT / 2, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(again == half);
	CHECK(munmap(half, LIMIT / 2) == 0);
	half = mapped(LIMIT / 2, MEMORY);
	limit(RLIMIT_AS, RLIM_INFINITY);
	again = mapped(LIMIT, MEMORY);
	/* Less than there is already: it stays, and nothing is added. */
	limit(RLIMIT_AS, LIMIT);
	memset(again, 1, MIB);
	REFUSED(map(1, MEMORY));
	CHECK(munmap(half, LIMIT / 2) == 0 && munmap(again, LIMIT) == 0);
	half = mapped(LIMIT / 4, MEMORY);
	CHECK(munmap(half, LIMIT / 4) == 0);
}

CASE(a_file_counts_as_memory_does)
{
	int file = memfd_create("file", 0);

	CHECK(file >= 0 && ftruncate(file, 2 * LIMIT) == 0);
	limit(RLIMIT_AS, LIMIT);
	REFUSED(mmap(NULL, LIMIT, PROT_READ, MAP_SHARED, file, 0));
	REFUSED(mmap(NULL, LIMIT, PROT_READ, MAP_PRIVATE, file, 0));
	void *half = mmap(NULL, LIMIT / 2, PROT_READ, MAP_SHARED, file, 0);

	CHECK(half != MAP_FAILED && munmap(half, LIMIT / 2) == 0 && close(file) == 0);
}

CASE(mremap_grows_up_to_the_limit)
{
	char *memory = mapped(MIB, MEMORY);

	limit(RLIMIT_AS, LIMIT);
	REFUSED(mremap(memory, MIB, LIMIT, MREMAP_MAYMOVE));
	memory = mremap(memory, MIB, LIMIT / 2, MREMAP_MAYMOVE);
	CHECK(memory != MAP_FAILED);
	REFUSED(mremap(memory, LIMIT / 2, LIMIT + MIB, MREMAP_MAYMOVE));
	memory = mremap(memory, LIMIT / 2, MIB, 0);
	CHECK(memory != MAP_FAILED && munmap(memory, MIB) == 0);
}

CASE(the_heap_grows_up_to_the_limit)
{
	static const int resources[] = { RLIMIT_AS, RLIMIT_DATA };

	for (int i = 0; i < 2; i++) {
		char *end = sbrk(0);

		limit(resources[i], LIMIT);
		FAILS(ENOMEM, sbrk(LIMIT) == (void *)-1 ? -1 : 0);
		CHECK(sbrk(LIMIT / 2) == end && sbrk(0) == end + LIMIT / 2);
		FAILS(ENOMEM, sbrk(LIMIT / 2) == (void *)-1 ? -1 : 0);
		CHECK(brk(end) == 0);
		limit(resources[i], RLIM_INFINITY);
	}
}

CASE(data_are_writable_and_private)
{
	char *memory;

	limit(RLIMIT_DATA, LIMIT);
	REFUSED(map(LIMIT, MEMORY));
	munmap(mapped(LIMIT, PROT_READ, MAP_PRIVATE), LIMIT);
	munmap(mapped(LIMIT, PROT_READ | PROT_WRITE, MAP_SHARED), LIMIT);
	memory = mapped(LIMIT, PROT_READ, MAP_PRIVATE);
	FAILS(ENOMEM, mprotect(memory, LIMIT, PROT_READ | PROT_WRITE));
	CHECK(mprotect(memory, LIMIT / 2, PROT_READ | PROT_WRITE) == 0);
	FAILS(ENOMEM, mprotect(memory + LIMIT / 2, LIMIT / 2, PROT_READ | PROT_WRITE));
	/* What is data already is no more. */
	CHECK(mprotect(memory, LIMIT / 2, PROT_READ | PROT_WRITE | PROT_EXEC) == 0);
	CHECK(mprotect(memory, LIMIT / 2, PROT_READ) == 0);
	CHECK(mprotect(memory + LIMIT / 2, LIMIT / 2, PROT_READ | PROT_WRITE) == 0);
	memory[LIMIT - 1] = 1;
	CHECK(munmap(memory, LIMIT) == 0);
}

/* Tells what the executed program has. */
ROLE(executed)
{
	return count == 3 && soft(RLIMIT_AS) == strtoul(arguments[1], NULL, 10) &&
	       soft(RLIMIT_DATA) == strtoul(arguments[2], NULL, 10) &&
	       map(LIMIT, MEMORY) == MAP_FAILED && map(MIB, MEMORY) != MAP_FAILED ? 0 : 1;
}

CASE(children_and_programs_inherit_limits)
{
	char all[32], data[32];
	int status;

	snprintf(all, sizeof(all), "%lu", LIMIT);
	snprintf(data, sizeof(data), "%lu", LIMIT - MIB);
	limit(RLIMIT_AS, LIMIT);
	limit(RLIMIT_DATA, LIMIT - MIB);
	for (int executes = 0; executes < 2; executes++) {
		pid_t child = fork();

		if (child == 0) {
			if (executes)
				execl("/proc/self/exe", "executed", all, data, NULL);
			_exit(map(LIMIT, MEMORY) == MAP_FAILED && soft(RLIMIT_AS) == LIMIT ? 0 : 1);
		}
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	/* A child limits itself alone. */
	if (fork() == 0) {
		limit(RLIMIT_AS, 2 * LIMIT);
		_exit(0);
	}
	CHECK(wait(&status) > 0 && status == 0 && soft(RLIMIT_AS) == LIMIT);
}

CASE(the_shell_and_its_programs_run_with_limits)
{
	CHECK(system("ulimit -v 500000 && ulimit -d 100000 && test \"$(ulimit -v) $(ulimit -d)\" = "
		     "'500000 100000' && test \"$(ls -d /)\" = /") == 0);
	CHECK(system("ulimit -v 500000 && (echo | cat) && sh -c 'test $(ulimit -v) = 500000'") == 0);
}

CASE(threads_start_with_limits)
{
	pthread_t thread;
	void *none(void *nothing) { return nothing; }

	limit(RLIMIT_AS, LIMIT);
	for (int i = 0; i < 20; i++)
		CHECK(pthread_create(&thread, NULL, none, NULL) == 0 &&
		      pthread_join(thread, NULL) == 0);
}

CASE(a_hard_limit_is_raised_by_root_alone)
{
	struct rlimit lower = { LIMIT, LIMIT }, higher = { LIMIT, LIMIT + 1 }, now;
	int status;
	pid_t child = fork();

	if (child == 0) {
		int well = setrlimit(RLIMIT_AS, &lower) == 0 &&
			   setrlimit(RLIMIT_AS, &higher) == 0 &&
			   setrlimit(RLIMIT_AS, &lower) == 0 && setuid(65534) == 0 &&
			   setrlimit(RLIMIT_AS, &higher) == -1 && errno == EPERM &&
			   prlimit(0, RLIMIT_AS, NULL, &now) == 0 && now.rlim_max == LIMIT &&
			   prlimit(getppid(), RLIMIT_AS, NULL, &now) == -1 && errno == EPERM;

		_exit(!well);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

CASE(others_are_limited_by_their_number)
{
	struct rlimit lower = { LIMIT, RLIM_INFINITY }, before = { 0, 0 };
	int ends[2], status;
	char byte;

	CHECK(pipe(ends) == 0);
	pid_t child = fork();

	if (child == 0) {
		CHECK(read(ends[0], &byte, 1) == 1);
		_exit(map(LIMIT, MEMORY) == MAP_FAILED && soft(RLIMIT_AS) == LIMIT ? 0 : 1);
	}
	CHECK(prlimit(child, RLIMIT_AS, &lower, &before) == 0 && before.rlim_cur == RLIM_INFINITY);
	CHECK(prlimit(child, RLIMIT_AS, NULL, &before) == 0 && before.rlim_cur == LIMIT);
	CHECK(soft(RLIMIT_AS) == RLIM_INFINITY);
	CHECK(write(ends[1], "x", 1) == 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	FAILS(ESRCH, prlimit(child, RLIMIT_AS, NULL, &before));
}

#define PAGE 4096L

/* How much is locked, in KiB, by what Linux tells. */
static long locked(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[200];
	long locked = -1;

	CHECK(status);
	while (fgets(line, sizeof(line), status))
		sscanf(line, "VmLck: %ld", &locked);
	fclose(status);
	return locked;
}

CASE(it_is_told_how_much_is_locked)
{
	char *memory = mapped(8 * PAGE, MEMORY);
	int status;

	CHECK(locked() == 0 && mlock(memory, 3 * PAGE) == 0 && locked() == 12);
	CHECK(mlock2(memory + 2 * PAGE, 2 * PAGE, MLOCK_ONFAULT) == 0 && locked() == 16);
	/* A child has locked nothing. */
	pid_t child = fork();

	if (child == 0)
		_exit(locked() != 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(munlock(memory, 2 * PAGE) == 0 && locked() == 8);
	CHECK(munlockall() == 0 && locked() == 0);
	CHECK(munmap(memory, 8 * PAGE) == 0);
}

/* Does that in a child that is nobody and may lock so many pages. */
static void as_nobody(long pages, void (*act)(char *memory))
{
	struct rlimit limit = { pages * PAGE, pages * PAGE };
	char *memory = mapped(16 * PAGE, MEMORY);
	int status;
	pid_t child = fork();

	if (child == 0) {
		CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setuid(65534) == 0);
		act(memory);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(munmap(memory, 16 * PAGE) == 0);
}

#define AGAIN(call) FAILS(EAGAIN, (call) == MAP_FAILED ? -1 : 0)
#define LOCKED (PROT_READ | PROT_WRITE), MAP_PRIVATE | MAP_LOCKED

static void lock_some(char *memory)
{
	char *more;

	CHECK(mlock(memory, 4 * PAGE) == 0);
	/* What is locked already counts once. */
	CHECK(mlock(memory, 4 * PAGE) == 0 && mlock2(memory + PAGE, PAGE, MLOCK_ONFAULT) == 0);
	FAILS(ENOMEM, mlock(memory, 5 * PAGE));
	FAILS(ENOMEM, mlock(memory + 4 * PAGE, 1));
	FAILS(ENOMEM, mlock2(memory + 4 * PAGE, 1, MLOCK_ONFAULT));
	FAILS(ENOMEM, mlockall(MCL_CURRENT));
	AGAIN(map(PAGE, LOCKED));
	CHECK(munlock(memory, PAGE) == 0);
	AGAIN(map(2 * PAGE, LOCKED));
	more = mapped(PAGE, LOCKED);
	AGAIN(mremap(more, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
	CHECK(munmap(more, PAGE) == 0 && munlockall() == 0);
	CHECK(mlockall(MCL_FUTURE) == 0);
	AGAIN(map(5 * PAGE, MEMORY));
	more = mapped(4 * PAGE, MEMORY);
	AGAIN(map(PAGE, MEMORY));
	CHECK(munmap(more, 4 * PAGE) == 0);
	munmap(mapped(PAGE, MEMORY), PAGE);
	CHECK(munlockall() == 0);
	munmap(mapped(5 * PAGE, MEMORY), 5 * PAGE);
}

static void lock_none(char *memory)
{
	FAILS(EPERM, mlock(memory, PAGE));
	FAILS(EPERM, mlock(memory, 0));
	FAILS(EPERM, mlock2(memory, PAGE, MLOCK_ONFAULT));
	FAILS(EINVAL, mlock2(memory, PAGE, 2));
	FAILS(EPERM, mlockall(MCL_CURRENT));
	FAILS(EPERM, mlockall(MCL_FUTURE));
	FAILS(EINVAL, mlockall(MCL_ONFAULT));
	FAILS(EPERM, map(PAGE, LOCKED) == MAP_FAILED ? -1 : 0);
	CHECK(munlock(memory, PAGE) == 0 && munlockall() == 0);
}

CASE(no_more_than_the_limit_is_locked)
{
	as_nobody(4, lock_some);
}

CASE(who_may_lock_nothing_has_no_permission)
{
	as_nobody(0, lock_none);
}

CASE(root_locks_as_much_as_it_wants)
{
	char *memory = mapped(16 * PAGE, MEMORY);

	limit(RLIMIT_MEMLOCK, 0);
	CHECK(mlock(memory, 16 * PAGE) == 0 && mlockall(MCL_FUTURE) == 0);
	munmap(mapped(16 * PAGE, LOCKED), 16 * PAGE);
	CHECK(munlockall() == 0 && munmap(memory, 16 * PAGE) == 0);
}
