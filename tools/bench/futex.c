// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * From before FUTEX_WAKE in one thread to the thread that it woke, back from FUTEX_WAIT.
 *
 *   futex-wake         both on one CPU; the woken thread has the higher priority, so it
 *                      runs at once
 *   futex-wake-across  the woken thread is on another CPU, which was idle
 *
 * In emulation CPUs take turns, so the second figure holds the rest of the waker's
 * call besides the path of the one that wakes: the waker hands its CPU's
 * turn over with `pause` as soon as it is back from its call.
 */
#include "threads.h"

#include <linux/futex.h>
#include <stdatomic.h>

/* How long a waiter may take to fall asleep, and its CPU to become idle. */
#define SETTLE_NS 100000

static int across;
static _Atomic uint32_t word;		/* number of the wake-up, counted from 1 */
static _Atomic uint32_t waiting, woken;	/* the wake-up that is waited for, that was seen */
static _Atomic uint64_t before;

static void futex(int operation, uint32_t value)
{
	syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void *waiter(void *unused)
{
	long total = options.samples + WARM_UP;

	if (across)
		pin(options.other);
	set_priority(HIGH);
	for (uint32_t i = 1; i <= total; i++) {
		uint64_t after;

		atomic_store(&waiting, i);
		while (atomic_load(&word) != i)
			futex(FUTEX_WAIT, i - 1);
		after = ticks();
		sample((long)i - 1 - WARM_UP, after - atomic_load(&before));
		atomic_store(&woken, i);
	}
	return unused;
}

int main(int argc, char **argv)
{
	long total;
	pthread_t thread;

	begin(argc, argv);
	across = wants("futex-wake-across");
	if (!across && !wants("futex-wake"))
		return unknown();
	set_priority(LOW);
	thread = start(waiter);
	total = options.samples + WARM_UP;
	for (uint32_t i = 1; i <= total; i++) {
		while (atomic_load(&waiting) != i)
			sleep_ns(SETTLE_NS);
		if (across)
			sleep_ns(SETTLE_NS);
		atomic_store(&before, ticks());
		atomic_store(&word, i);
		futex(FUTEX_WAKE, 1);
		while (atomic_load(&woken) != i)
			__builtin_ia32_pause();
	}
	join(thread);
	return report();
}
