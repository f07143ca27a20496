// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Memory is replaced, moved and given up while other threads of the program touch it, or memory
 * beside it, for the first time. What is mapped before and after is never missing in between.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "check.h"
#include "touch.h"

#define SIZE (4 << 20)
#define ROUNDS 4

static char *area, *beside;
static atomic_int stop, largest;

static char *map(char *place, size_t size)
{
	int fixed = place ? MAP_FIXED : 0;

	return mmap(place, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1,
		    0);
}

/* Looks at the pages of `area`, in an order that changes. Each is zero or what a round wrote. */
static void *looks(void *unused)
{
	size_t step = 7919;

	while (!stop)
		for (size_t page = 0; page < SIZE / PAGE && !stop; page++) {
			char *at = area + (page * step % (SIZE / PAGE)) * PAGE;
			int found = *(volatile char *)at;

			CHECK(found >= 0 && found <= largest);
		}
	return unused;
}

/* Touches new pages of `beside`, which nobody else uses, and has them empty again. */
static void *touches(void *unused)
{
	while (!stop)
		for (size_t page = 0; page < 256 && !stop; page++) {
			volatile char *at = beside + page * PAGE;

			CHECK(*at == 0);
			*at = 1;
			CHECK(*at == 1 && madvise((void *)at, PAGE, MADV_DONTNEED) == 0);
		}
	return unused;
}

static void write_all(char *start, int value)
{
	for (size_t page = 0; page < SIZE / PAGE; page++)
		start[page * PAGE] = (char)value;
}

/* Calls `change` for each round while two threads do the above. */
static void while_touched(void (*change)(int round))
{
	pthread_t threads[2];

	stop = largest = 0;
	area = map(NULL, SIZE);
	beside = map(NULL, SIZE);
	CHECK(area != MAP_FAILED && beside != MAP_FAILED);
	CHECK(pthread_create(&threads[0], NULL, looks, NULL) == 0);
	CHECK(pthread_create(&threads[1], NULL, touches, NULL) == 0);
	for (int round = 1; round <= ROUNDS; round++) {
		largest = round;
		change(round);
	}
	stop = 1;
	pthread_join(threads[0], NULL);
	pthread_join(threads[1], NULL);
	munmap(area, SIZE);
	munmap(beside, SIZE);
}

static void replace(int round)
{
	CHECK(map(area, SIZE) == area);
	write_all(area, round);
}

CASE(memory_that_is_replaced_is_never_missing)
{
	while_touched(replace);
}

static void move_there(int round)
{
	char *other = map(NULL, SIZE);

	CHECK(other != MAP_FAILED);
	write_all(other, round);
	CHECK(mremap(other, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, area) == area);
	for (size_t page = 0; page < SIZE / PAGE; page++)
		CHECK(area[page * PAGE] == round);
	FAILS(ENOMEM, madvise(other, SIZE, MADV_NORMAL));
}

CASE(memory_that_something_is_moved_to_is_never_missing)
{
	while_touched(move_there);
}

static void protect(int round)
{
	write_all(area, round);
	CHECK(mprotect(area, SIZE, PROT_READ) == 0);
	CHECK(mprotect(area, SIZE, PROT_READ | PROT_WRITE) == 0);
	CHECK(madvise(area, SIZE, MADV_DONTNEED) == 0);
}

CASE(memory_that_is_protected_can_be_read)
{
	while_touched(protect);
}

static void lock(int round)
{
	write_all(area, round);
	CHECK(mlock(area, SIZE) == 0 && munlock(area, SIZE) == 0);
	CHECK(madvise(area, SIZE, MADV_DONTNEED) == 0 && mlock(area, SIZE) == 0);
	CHECK(munlock(area, SIZE) == 0);
}

CASE(memory_that_is_locked_can_be_read)
{
	while_touched(lock);
}

/* A hole in the middle of a mapping is mapped again; there are as many pieces as that makes. */
static void pieces(int round)
{
	write_all(area, round);
	for (size_t page = 1; page < 16; page += 2)
		CHECK(mprotect(area + page * PAGE, PAGE, PROT_READ) == 0);
	CHECK(map(area, 16 * PAGE) == area);
}

CASE(many_pieces_are_replaced_by_one)
{
	while_touched(pieces);
}

/* How often memory was taken away or given back: odd while `area` cannot be written to. */
static atomic_int changes;

/* Writes to the pages of `area`, and sees that none can be written to while they are away. */
static void *writes(void *unused)
{
	while (!stop)
		for (size_t page = 0; page < 256 && !stop; page++) {
			const int before = changes;
			const int signal = touch(area + page * PAGE, 1);

			CHECK(signal == 0 || signal == SIGSEGV);
			/* What was taken away in the middle counts as written before. */
			if (changes == before)
				CHECK(before % 2 == 0 || signal == SIGSEGV);
		}
	return unused;
}

/* While a thread writes, one that interrupts it takes the memory away and gives it back. */
static void while_written(void (*take)(void), void (*give)(void))
{
	const struct sched_param urgent = { .sched_priority = 10 }, none = { .sched_priority = 0 };
	struct sigaction action = { .sa_handler = caught };
	unsigned seed = 1;
	pthread_t thread;

	stop = changes = 0;
	area = map(NULL, 256 * PAGE);
	CHECK(area != MAP_FAILED && sigaction(SIGSEGV, &action, NULL) == 0);
	CHECK(pthread_create(&thread, NULL, writes, NULL) == 0);
	CHECK(sched_setscheduler(0, SCHED_FIFO, &urgent) == 0);
	for (int round = 0; round < 300; round++) {
		usleep((unsigned)rand_r(&seed) % 300);
		take();
		changes++;
		usleep(50);
		changes++;
		give();
	}
	stop = 1;
	pthread_join(thread, NULL);
	CHECK(sched_setscheduler(0, SCHED_OTHER, &none) == 0);
	munmap(area, 256 * PAGE);
}

static void take_all(void)
{
	CHECK(munmap(area, 256 * PAGE) == 0);
}

static void give_all(void)
{
	CHECK(map(area, 256 * PAGE) == area);
}

CASE(a_page_that_is_being_made_does_not_come_where_nothing_is_mapped)
{
	while_written(take_all, give_all);
}

static void take_right(void)
{
	CHECK(mprotect(area, 256 * PAGE, PROT_READ) == 0);
}

static void give_right(void)
{
	CHECK(madvise(area, 256 * PAGE, MADV_DONTNEED) == 0);
	CHECK(mprotect(area, 256 * PAGE, PROT_READ | PROT_WRITE) == 0);
}

CASE(a_page_that_is_being_made_has_no_rights_that_were_taken_away)
{
	while_written(take_right, give_right);
}
