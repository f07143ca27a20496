// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
/* Anonymous memory over fork: what is shared, what is private, and locks between processes. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"
#include "children.h"

#define PAGE 4096UL

struct shared {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	sem_t semaphore;
	atomic_int counter;
	int plain;
};

static char *map(size_t length, int flags)
{
	return mmap(NULL, length, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
}

/* Makes eight pages of shared memory, with a letter in two of them. */
static char *letters(void)
{
	char *a = map(8 * PAGE, MAP_SHARED);

	CHECK(a != MAP_FAILED && a[0] == 0);
	a[PAGE] = 'p';
	a[2 * PAGE] = 'c';
	return a;
}

/* The parent has touched some of the memory before. */
CASE(parent_and_child_share_what_is_to_be_shared)
{
	char *a, *private;
	pid_t child;

	a = map(8 * PAGE, MAP_SHARED);
	private = map(2 * PAGE, MAP_PRIVATE);
	CHECK(a != MAP_FAILED && a[0] == 0);
	a[PAGE] = 'p';
	private[0] = 'p';
	mprotect(private + PAGE, PAGE, PROT_READ);
	child = fork();
	if (!child) {
		int good = a[PAGE] == 'p' && private[0] == 'p' && private[PAGE] == 0;

		a[0] = a[2 * PAGE] = 'c';
		private[0] = 'c';
		mprotect(private + PAGE, PAGE, PROT_READ | PROT_WRITE);
		private[PAGE] = 'c';
		_exit(good ? 0 : 1);
	}
	CHECK(status_of(child) == 0);
	CHECK(a[0] == 'c' && a[PAGE] == 'p' && a[2 * PAGE] == 'c' && a[3 * PAGE] == 0);
	CHECK(private[0] == 'p' && private[PAGE] == 0);
	CHECK(mprotect(private + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	private[PAGE] = 'x';
	CHECK(private[PAGE] == 'x');
	CHECK(munmap(a, 8 * PAGE) == 0 && munmap(private, 2 * PAGE) == 0);
}

/* Private memory is zero afterwards. */
CASE(shared_memory_that_is_given_up_keeps_its_contents)
{
	char *a = letters(), *private = map(2 * PAGE, MAP_PRIVATE);

	a[0] = 'c';
	private[0] = 'p';
	CHECK(madvise(a, 8 * PAGE, MADV_DONTNEED) == 0 && a[0] == 'c' && a[2 * PAGE] == 'c');
	CHECK(madvise(private, PAGE, MADV_DONTNEED) == 0 && private[0] == 0);
	CHECK(madvise(a, PAGE, MADV_REMOVE) == 0 && a[0] == 0 && a[2 * PAGE] == 'c');
	CHECK(munmap(a, 8 * PAGE) == 0 && munmap(private, 2 * PAGE) == 0);
}

CASE(shared_memory_can_be_moved_and_mapped_twice)
{
	char *a = letters(), *b;

	b = mremap(a, 8 * PAGE, 16 * PAGE, MREMAP_MAYMOVE);
	CHECK(b != MAP_FAILED && b[PAGE] == 'p' && b[2 * PAGE] == 'c');
	a = mremap(b, 0, 8 * PAGE, MREMAP_MAYMOVE);
	CHECK(a != MAP_FAILED && a != b);
	FAILS(ENOMEM, mremap(b, 0, 8 * PAGE, 0));
	b[2 * PAGE] = 'm';
	CHECK(a[2 * PAGE] == 'm');
	CHECK(munmap(b, PAGE) == 0 && mprotect(b + PAGE, PAGE, PROT_READ) == 0 && b[PAGE] == 'p');
	CHECK(munmap(b + PAGE, 15 * PAGE) == 0 && a[PAGE] == 'p' && a[2 * PAGE] == 'm');
	CHECK(msync(a, 8 * PAGE, MS_SYNC) == 0);
	CHECK(munmap(a, 8 * PAGE) == 0);
}

CASE(private_memory_cannot_be_mapped_twice)
{
	char *private = map(2 * PAGE, MAP_PRIVATE);

	FAILS(EINVAL, mremap(private, 0, PAGE, MREMAP_MAYMOVE));
	FAILS(EINVAL, mremap(private, 0, PAGE, 0));
	CHECK(munmap(private, 2 * PAGE) == 0);
}

CASE(pipes_read_and_write_shared_memory)
{
	char *a = letters();
	pid_t child;

	int ends[2];

	CHECK(pipe(ends) == 0 && write(ends[1], a + PAGE, 1) == 1 &&
	      read(ends[0], a + 5 * PAGE, 1) == 1);
	CHECK(a[5 * PAGE] == 'p');
	child = fork();
	if (!child)
		_exit(write(ends[1], "q", 1) == 1 && read(ends[0], a + 6 * PAGE, 1) == 1 ? 0 : 1);
	CHECK(status_of(child) == 0 && a[6 * PAGE] == 'q');
	munmap(a, 8 * PAGE);
}

CASE(processes_share_a_mutex_a_condition_and_a_semaphore)
{
	struct shared *shared = (void *)map(sizeof(*shared), MAP_SHARED);
	pthread_mutexattr_t robust;
	pthread_condattr_t condition;
	pid_t children[4];

	pthread_mutexattr_init(&robust);
	pthread_mutexattr_setpshared(&robust, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->mutex, &robust);
	pthread_condattr_init(&condition);
	pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&shared->changed, &condition);
	sem_init(&shared->semaphore, 1, 0);
	for (int i = 0; i < 4; i++) {
		children[i] = fork();
		if (children[i])
			continue;
		for (int round = 0; round < 500; round++) {
			pthread_mutex_lock(&shared->mutex);
			shared->plain++;
			pthread_mutex_unlock(&shared->mutex);
			shared->counter++;
		}
		sem_post(&shared->semaphore);
		pthread_mutex_lock(&shared->mutex);
		while (shared->plain != -1)
			pthread_cond_wait(&shared->changed, &shared->mutex);
		pthread_mutex_unlock(&shared->mutex);
		_exit(0);
	}
	for (int i = 0; i < 4; i++)
		sem_wait(&shared->semaphore);
	CHECK(shared->plain == 2000 && shared->counter == 2000);
	pthread_mutex_lock(&shared->mutex);
	shared->plain = -1;
	pthread_cond_broadcast(&shared->changed);
	pthread_mutex_unlock(&shared->mutex);
	for (int i = 0; i < 4; i++)
		CHECK(status_of(children[i]) == 0);
}
