// SPDX-License-Identifier: MIT OR Apache-2.0
// also: dynamic
// also: musl
/*
 * Futexes between processes, at words of files in memory: a memfd, a file of /dev/shm, a segment
 * of System V. Linux has the pages, so that programs outside of the realm could wait there, too.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <time.h>

#include "check.h"
#include "children.h"
#include "moments.h"

#define PAGE 4096UL
#define WORDS 40

static long futex(_Atomic uint32_t *word, int operation, uint32_t value, const void *timeout,
		  _Atomic uint32_t *second, uint32_t third)
{
	return syscall(SYS_futex, word, operation, value, timeout, second, third);
}

static _Atomic uint32_t *map(int fd, int protection)
{
	void *words = mmap(NULL, PAGE, protection, MAP_SHARED, fd, 0);

	CHECK(words != MAP_FAILED);
	close(fd);
	return words;
}

static _Atomic uint32_t *memfd(void)
{
	int fd = memfd_create("words", 0);

	CHECK(!ftruncate(fd, PAGE));
	return map(fd, PROT_READ | PROT_WRITE);
}

/* Returns how many wait at a word, by moving them to where they are. */
static long queued(_Atomic uint32_t *word)
{
	return futex(word, FUTEX_REQUEUE, 0, (void *)(long)INT_MAX, word, 0);
}

/*
 * Who waits in the realm waits in Linux as well a moment later, where the word is compared again: a
 * change up to then may end the wait before the wake-up.
 */
static void await_queued(_Atomic uint32_t *word, long count)
{
	for (int waited = 0; waited < 5000 && queued(word) < count; waited++)
		pause_for(1);
	CHECK(queued(word) == count);
	pause_for(20);
}

/* A child that waits at a word while it is 0, and ends with 0 when it is woken there. */
static pid_t waiter(_Atomic uint32_t *word, uint32_t bits)
{
	long before = queued(word);
	pid_t child = fork();

	if (!child)
		_exit(futex(word, FUTEX_WAIT_BITSET, 0, NULL, NULL, bits) != 0);
	await_queued(word, before + 1);
	return child;
}

static long wake(_Atomic uint32_t *word, uint32_t count)
{
	return futex(word, FUTEX_WAKE, count, NULL, NULL, 0);
}

static void meet(_Atomic uint32_t *word)
{
	pid_t child = waiter(word, FUTEX_BITSET_MATCH_ANY);

	*word = 1;
	CHECK(wake(word, 1) == 1);
	CHECK(exits_with(child, 0));
	CHECK(wake(word, 1) == 0);
}

CASE(a_process_is_woken_in_a_memfd)
{
	meet(memfd() + 5);
}

CASE(a_process_is_woken_in_a_file_of_dev_shm)
{
	int fd = open("/dev/shm/shared-futexes", O_RDWR | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0 && !ftruncate(fd, PAGE));
	unlink("/dev/shm/shared-futexes");
	meet(map(fd, PROT_READ | PROT_WRITE));
}

CASE(a_process_is_woken_in_a_segment)
{
	int segment = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0600);
	void *words = shmat(segment, NULL, 0);

	shmctl(segment, IPC_RMID, NULL);
	CHECK(words != (void *)-1);
	meet(words);
}

CASE(another_value_is_told)
{
	_Atomic uint32_t *word = memfd();

	*word = 7;
	CHECK(futex(word, FUTEX_WAIT, 6, NULL, NULL, 0) == -1 && errno == EAGAIN);
	CHECK(futex(word, FUTEX_WAIT_BITSET, 7, NULL, NULL, 0) == -1 && errno == EINVAL);
}

CASE(a_wait_ends_in_time)
{
	struct timespec limit = timespec(20 * 1000000);
	_Atomic uint32_t *word = memfd();
	long before = milliseconds();

	CHECK(futex(word, FUTEX_WAIT, 0, &limit, NULL, 0) == -1 && errno == ETIMEDOUT);
	CHECK(milliseconds() - before >= 20);
	CHECK(queued(word) == 0);
}

static void handler(int signal)
{
	(void)signal;
}

CASE(a_handler_ends_a_wait)
{
	struct sigaction action = { .sa_handler = handler };
	_Atomic uint32_t *word = memfd();
	pid_t child;

	sigaction(SIGUSR1, &action, NULL);
	child = fork();
	if (!child)
		_exit(!(futex(word, FUTEX_WAIT, 0, NULL, NULL, 0) == -1 && errno == EINTR));
	await_queued(word, 1);
	kill(child, SIGUSR1);
	CHECK(exits_with(child, 0));
	CHECK(queued(word) == 0);
}

CASE(waiters_are_woken_by_their_bits)
{
	_Atomic uint32_t *word = memfd();
	pid_t first = waiter(word, 1), second = waiter(word, 2);

	CHECK(futex(word, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, 4) == 0);
	CHECK(futex(word, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, 2) == 1);
	CHECK(exits_with(second, 0));
	CHECK(futex(word, FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, 3) == 1);
	CHECK(exits_with(first, 0));
}

CASE(as_many_are_woken_as_asked_for)
{
	_Atomic uint32_t *word = memfd();
	pid_t children[4];
	int i;

	for (i = 0; i < 4; i++)
		children[i] = waiter(word, FUTEX_BITSET_MATCH_ANY);
	CHECK(wake(word, 3) == 3);
	CHECK(wake(word, 3) == 1);
	for (i = 0; i < 4; i++)
		CHECK(exits_with(children[i], 0));
}

/* Who is killed takes no wake-up with him. */
CASE(a_killed_waiter_is_no_waiter)
{
	_Atomic uint32_t *word = memfd();
	pid_t killed = waiter(word, FUTEX_BITSET_MATCH_ANY);
	pid_t woken = waiter(word, FUTEX_BITSET_MATCH_ANY);

	kill(killed, SIGKILL);
	CHECK(ends_by(killed, SIGKILL));
	CHECK(wake(word, 1) == 1);
	CHECK(exits_with(woken, 0));
}

/* Whoever is moved may wait on, or be woken at once. */
CASE(moved_waiters_end)
{
	_Atomic uint32_t *words = memfd();
	pid_t children[3];
	int i;

	for (i = 0; i < 3; i++)
		children[i] = waiter(words, FUTEX_BITSET_MATCH_ANY);
	CHECK(futex(words, FUTEX_CMP_REQUEUE, 1, (void *)2L, words + 1, 9) == -1 &&
	      errno == EAGAIN);
	CHECK(futex(words, FUTEX_CMP_REQUEUE, 1, (void *)2L, words + 1, 0) == 3);
	wake(words + 1, 2);
	for (i = 0; i < 3; i++)
		CHECK(exits_with(children[i], 0));
}

/* At once: no waiter finds the word changed before it is woken. */
CASE(a_wake_changes_the_other_word)
{
	for (int turn = 0; turn < 40; turn++) {
		_Atomic uint32_t *words = memfd();
		pid_t first = waiter(words, FUTEX_BITSET_MATCH_ANY);
		pid_t second = waiter(words + 1, FUTEX_BITSET_MATCH_ANY);

		CHECK(futex(words, FUTEX_WAKE_OP, 1, (void *)1L, words + 1,
			    FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0)) == 2);
		CHECK(words[1] == 3);
		CHECK(exits_with(first, 0) && exits_with(second, 0));
		munmap((void *)words, PAGE);
	}
}

/* Who may only read the file waits at the same word. */
CASE(a_reader_is_woken)
{
	int fd = open("/dev/shm/shared-futexes", O_RDWR | O_CREAT | O_TRUNC, 0600);
	int reading = open("/dev/shm/shared-futexes", O_RDONLY);
	_Atomic uint32_t *word, *read_only;
	pid_t child;

	CHECK(fd >= 0 && reading >= 0 && !ftruncate(fd, PAGE));
	unlink("/dev/shm/shared-futexes");
	word = map(fd, PROT_READ | PROT_WRITE);
	child = fork();
	if (!child) {
		read_only = map(reading, PROT_READ);
		word[1] = 1;
		while (!*read_only)
			futex(read_only, FUTEX_WAIT, 0, NULL, NULL, 0);
		_exit(0);
	}
	while (!word[1])
		pause_for(1);
	/* It waits by now, or comes too late to wait. */
	pause_for(20);
	*word = 1;
	wake(word, 1);
	CHECK(exits_with(child, 0));
}

static void *wait_there(void *argument)
{
	_Atomic uint32_t *word = argument;

	while (!*word)
		futex(word, FUTEX_WAIT, 0, NULL, NULL, 0);
	return NULL;
}

CASE(threads_wait_at_many_words)
{
	_Atomic uint32_t *words = memfd();
	pid_t child = fork();
	int i;

	if (!child) {
		pthread_t threads[WORDS];

		for (i = 0; i < WORDS; i++)
			pthread_create(&threads[i], NULL, wait_there, (void *)(words + i));
		for (i = 0; i < WORDS; i++)
			pthread_join(threads[i], NULL);
		_exit(0);
	}
	for (i = 0; i < WORDS; i++)
		await_queued(words + i, 1);
	for (i = 0; i < WORDS; i++) {
		words[i] = 1;
		CHECK(wake(words + i, 1) == 1);
	}
	CHECK(exits_with(child, 0));
}

/* Two processes pass a ball: whose turn it is stands in the word. */
static int play(_Atomic uint32_t *ball, uint32_t own, uint32_t turns)
{
	uint32_t now;

	for (uint32_t turn = 0; turn < turns; turn++) {
		while ((now = *ball) % 2 != own)
			futex(ball, FUTEX_WAIT, now, NULL, NULL, 0);
		*ball = now + 1;
		wake(ball, 1);
	}
	return 0;
}

CASE(no_wake_up_is_lost_between_two_processes)
{
	_Atomic uint32_t *ball = memfd();
	pid_t child = fork();

	if (!child)
		_exit(play(ball, 1, 1000));
	play(ball, 0, 1000);
	CHECK(exits_with(child, 0));
	CHECK(*ball == 2000);
}

/*
 * Who is woken and waits again, at a word that nobody changes, is not woken by the same wake-up
 * once more, also if that was for more than there were.
 */
CASE(a_wake_up_wakes_nobody_twice)
{
	enum { TURNS = 30 };
	_Atomic uint32_t *word = memfd(), *count = word + 1;
	pid_t child = fork();

	if (!child) {
		for (; *count < TURNS; ++*count)
			if (futex(word, FUTEX_WAIT, 0, NULL, NULL, 0))
				_exit(1);
		_exit(0);
	}
	for (uint32_t turn = 1; turn <= TURNS; turn++) {
		PART("turn %u", turn);
		while (wake(word, INT_MAX) != 1)
			pause_for(1);
		for (int waited = 0; waited < 5000 && *count < turn; waited++)
			pause_for(1);
		pause_for(20);
		CHECK(*count == turn);
	}
	CHECK(exits_with(child, 0));
}

/* Whatever others change of a thread while it begins to wait, which needs something of Linux. */
/* Wakes the one that waits at a word, or will soon; says how many it has woken. */
static long wake_who_comes(_Atomic uint32_t *word)
{
	long woken = 0;

	for (int waited = 0; !woken && waited < 2000; waited++) {
		woken = wake(word, INT_MAX);
		if (!woken)
			pause_for(1);
	}
	return woken;
}

CASE(a_wake_up_reaches_nobody_who_waits_later)
{
	struct timespec patience = { .tv_sec = 10 };
	_Atomic uint32_t *word = memfd();
	pid_t child = fork();

	/* Each wakes the other and waits: a wait that ends too early leaves the other alone. */
	for (int round = 0; round < 40; round++) {
		if (!child) {
			if (futex(word, FUTEX_WAIT, 0, &patience, NULL, 0))
				_exit(1);
			for (int call = 0; call < round % 4; call++)
				access("/", F_OK);
			if (wake_who_comes(word) != 1)
				_exit(2);
		} else {
			CHECK(wake_who_comes(word) == 1);
			CHECK(!futex(word, FUTEX_WAIT, 0, &patience, NULL, 0));
		}
	}
	if (!child)
		_exit(0);
	CHECK(exits_with(child, 0));
}

CASE(a_thread_whose_nice_value_changes_waits_as_well)
{
	_Atomic uint32_t *word = memfd();

	for (int turn = 0; turn < 10; turn++) {
		pid_t child = fork();

		PART("turn %d", turn);
		if (!child) {
			long woken;

			setpriority(PRIO_PROCESS, 0, 1);
			do
				woken = wake(word, 1);
			while (!woken);
			_exit(futex(word, FUTEX_WAIT, 0, NULL, NULL, 0) != 0);
		}
		CHECK(futex(word, FUTEX_WAIT, 0, NULL, NULL, 0) == 0);
		for (int nice = 2; nice < 20; nice++)
			CHECK(setpriority(PRIO_PROCESS, child, nice) == 0);
		for (int waited = 0; waited < 5000 && wake(word, 1) != 1; waited++)
			pause_for(1);
		CHECK(exits_with(child, 0));
	}
}

/* A process that executes another program, or unmaps the word, has woken before. */
CASE(a_wake_up_comes_before_the_memory_goes)
{
	_Atomic uint32_t *words = memfd();

	for (int turn = 0; turn < 20; turn++) {
		pid_t child = waiter(words, FUTEX_BITSET_MATCH_ANY), waking = fork();

		if (!waking) {
			wake(words, 1);
			munmap((void *)words, PAGE);
			_exit(0);
		}
		CHECK(exits_with(waking, 0) && exits_with(child, 0));
	}
}
