// SPDX-License-Identifier: GPL-2.0-only
/*
 * Linux's last words: when it oopses, panics or shuts down, the end of its log
 * goes where the realm reads it, and the realm learns whether that was the end.
 * With a crash kernel loaded a panic goes there first, and nothing is said.
 */
#include <linux/kmsg_dump.h>
#include <linux/rcupdate.h>

#include "compat.h"
#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* Several CPUs can oops at once. Who panics does not wait for one that it has stopped. */
static atomic_t saying = ATOMIC_INIT(0);

static void say(struct crtos_realm *realm, bool ended)
{
	struct crtos_channel *channel = realm->channel;
	struct kmsg_dump_iter iter;
	size_t length = 0;

	/* Who reads meanwhile sees less, or words of both times. */
	WRITE_ONCE(channel->last_words_length, 0);
	kmsg_dump_rewind(&iter);
	kmsg_dump_get_buffer(&iter, false, (char *)channel->last_words,
			     sizeof(channel->last_words), &length);
	WRITE_ONCE(channel->last_words_length, length);
	if (ended)
		WRITE_ONCE(channel->linux_state, CRTOS_LINUX_ENDED);
	/* After the above; pairs with last_words_count() of lib/channel. */
	smp_store_release(&channel->last_words_count, READ_ONCE(channel->last_words_count) + 1);
	crtos_hypercall(CRTOS_HC_DOORBELL, realm->cell->number, 0, 0, 0);
}

/* Any context: of a panic as well, when all other CPUs have been stopped. */
static void dump(struct kmsg_dumper *dumper, crtos_dump_detail detail)
{
	/* After an oops Linux goes on, or panics. */
	bool ended = crtos_dump_reason(detail) != KMSG_DUMP_OOPS;
	struct crtos_realm *realm;

	if (atomic_xchg(&saying, 1) && !ended)
		return;
	rcu_read_lock();
	realm = crtos_realm_alive();
	if (realm)
		say(realm, ended);
	rcu_read_unlock();
	atomic_set(&saying, 0);
}

static struct kmsg_dumper dumper = {
	.dump = dump,
	.max_reason = KMSG_DUMP_SHUTDOWN,
};

/**
 * crtos_last_words_init() - have Linux say its last words to the realm
 *
 * Return: 0 or a negative error.
 */
int crtos_last_words_init(void)
{
	return kmsg_dump_register(&dumper);
}

/**
 * crtos_last_words_exit() - have it do so no more
 *
 * Context: Sleeps for a grace period.
 */
void crtos_last_words_exit(void)
{
	kmsg_dump_unregister(&dumper);
}
