// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * PR_GET_SPECULATION_CTRL and PR_SET_SPECULATION_CTRL for indirect branches. Where the processor
 * has no barrier nothing can be asked for; elsewhere what a thread asks for is its own and its
 * children's.
 */
#define _GNU_SOURCE
#include <linux/prctl.h>
#include <pthread.h>
#include <sys/prctl.h>

#include "check.h"
#include "children.h"

#define WHAT PR_SPEC_INDIRECT_BRANCH

static int get(void) { return prctl(PR_GET_SPECULATION_CTRL, WHAT, 0, 0, 0); }
static int set(long state) { return prctl(PR_SET_SPECULATION_CTRL, WHAT, state, 0, 0); }

/* Whether a thread can ask for anything. */
static int is_there(void) { return get() > 0 && get() & PR_SPEC_PRCTL; }

static void *get_in_thread(void *unused)
{
	(void)unused;
	return (void *)(long)get();
}

static void *ask_in_thread(void *unused)
{
	(void)unused;
	return (void *)(long)set(PR_SPEC_DISABLE);
}

static long result_of(void *(*run)(void *))
{
	pthread_t thread;
	void *result;

	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	CHECK(pthread_join(thread, &result) == 0);
	return (long)result;
}

CASE(what_is_unknown_is_refused)
{
	CHECK(prctl(PR_GET_SPECULATION_CTRL, 99, 0, 0, 0) == -1 && errno == ENODEV);
	CHECK(prctl(PR_SET_SPECULATION_CTRL, 99, PR_SPEC_DISABLE, 0, 0) == -1 && errno == ENODEV);
	CHECK(prctl(PR_GET_SPECULATION_CTRL, WHAT, 1, 0, 0) == -1 && errno == EINVAL);
	CHECK(prctl(PR_GET_SPECULATION_CTRL, WHAT, 0, 0, 1) == -1 && errno == EINVAL);
	CHECK(prctl(PR_SET_SPECULATION_CTRL, WHAT, PR_SPEC_DISABLE, 1, 0) == -1 && errno == EINVAL);
	CHECK(set(99) == -1 && errno == ERANGE);
	CHECK(set(1L << 40 | PR_SPEC_DISABLE) == -1 && errno == ERANGE);
}

CASE(nothing_is_asked_for_at_first)
{
	CHECK(set(PR_SPEC_ENABLE) == 0);
	CHECK(get() == PR_SPEC_ENABLE || get() == (PR_SPEC_PRCTL | PR_SPEC_ENABLE));
}

CASE(without_a_barrier_nobody_is_kept_apart)
{
	if (is_there())
		return;
	CHECK(set(PR_SPEC_DISABLE) == -1 && errno == EPERM);
	CHECK(set(PR_SPEC_FORCE_DISABLE) == -1 && errno == EPERM);
}

CASE(a_thread_asks_for_itself_and_who_it_starts)
{
	if (!is_there())
		return;
	CHECK(result_of(ask_in_thread) == 0);
	CHECK(get() == (PR_SPEC_PRCTL | PR_SPEC_ENABLE));
	CHECK(set(PR_SPEC_DISABLE) == 0);
	CHECK(get() == (PR_SPEC_PRCTL | PR_SPEC_DISABLE));
	CHECK(result_of(get_in_thread) == (PR_SPEC_PRCTL | PR_SPEC_DISABLE));
	CHECK(set(PR_SPEC_ENABLE) == 0);
}

CASE(what_was_forced_stays)
{
	pid_t child;

	if (!is_there())
		return;
	child = fork();
	if (child == 0)
		_exit(set(PR_SPEC_FORCE_DISABLE) == 0 &&
		      get() == (PR_SPEC_PRCTL | PR_SPEC_FORCE_DISABLE) &&
		      set(PR_SPEC_ENABLE) == -1 && errno == EPERM ? 0 : 1);
	CHECK(exits_with(child, 0));
	CHECK(get() == (PR_SPEC_PRCTL | PR_SPEC_ENABLE));
}
