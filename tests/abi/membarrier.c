// SPDX-License-Identifier: MIT OR Apache-2.0
/* membarrier among the threads of a process: what has to be registered, and what it orders. */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

#define ROUNDS 100

static int membarrier(int command, unsigned int flags)
{
	return syscall(SYS_membarrier, command, flags, 0);
}

static atomic_int round_of[2], mine[2], seen[2];

/*
 * Stores, then looks at what the other stored, with nothing that orders the two but the other's
 * call.
 */
static void *light(void *unused)
{
	for (int round = 1; round <= ROUNDS; round++) {
		while (atomic_load_explicit(&round_of[1], memory_order_acquire) < round)
			sched_yield();
		atomic_store_explicit(&mine[0], round, memory_order_relaxed);
		atomic_signal_fence(memory_order_seq_cst);
		atomic_store_explicit(&seen[0],
				      atomic_load_explicit(&mine[1], memory_order_relaxed),
				      memory_order_relaxed);
		atomic_store_explicit(&round_of[0], round, memory_order_release);
	}
	return unused;
}

/* Returns in how many rounds neither saw what the other had stored, or -1. */
static int rounds_without_order(void)
{
	pthread_t thread;
	int bad = 0;

	pthread_create(&thread, NULL, light, NULL);
	for (int round = 1; round <= ROUNDS; round++) {
		atomic_store_explicit(&round_of[1], round, memory_order_release);
		atomic_store_explicit(&mine[1], round, memory_order_relaxed);
		if (membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0))
			return -1;
		seen[1] = atomic_load_explicit(&mine[0], memory_order_relaxed);
		while (atomic_load_explicit(&round_of[0], memory_order_acquire) < round)
			sched_yield();
		bad += seen[0] < round && seen[1] < round;
	}
	pthread_join(thread, NULL);
	return bad;
}

CASE(the_commands_of_one_process_are_offered)
{
	int offered = membarrier(MEMBARRIER_CMD_QUERY, 0);
	int wanted = MEMBARRIER_CMD_PRIVATE_EXPEDITED | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED |
		     MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE |
		     MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE;

	CHECK((offered & wanted) == wanted);
}

CASE(what_is_not_registered_is_refused)
{
	FAILS(EPERM, membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0));
	FAILS(EPERM, membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0));
}

CASE(bad_commands_are_refused)
{
	int wanted = MEMBARRIER_CMD_PRIVATE_EXPEDITED | MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED |
		     MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE |
		     MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE;

	FAILS(EINVAL, membarrier(MEMBARRIER_CMD_QUERY, 1));
	FAILS(EINVAL, membarrier(wanted, 0));
	FAILS(EINVAL, membarrier(1 << 20, 0));
}

CASE(each_kind_is_registered_by_itself)
{
	CHECK(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0) == 0);
	CHECK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) == 0);
	FAILS(EPERM, membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0));
	CHECK(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0) == 0);
	CHECK(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0) == 0);
}

CASE(a_barrier_orders_threads_that_have_none)
{
	CHECK(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0) == 0);
	CHECK(rounds_without_order() == 0);
}

CASE(a_child_stays_registered)
{
	int status;
	pid_t child;

	CHECK(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0) == 0);
	child = fork();
	if (!child)
		_exit(membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0) != 0);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}
