/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Linux's end of the remote path: transitions of slots, bitmaps, the rank rule,
 * the table of drops. The interface describes the protocol.
 *
 * This file needs integers and atomics only, so that tests can compile it on a
 * host (see channel_host.h) and run it against the kernel's end. Nothing here
 * sleeps, locks or allocates; any context.
 *
 * The channel is memory that the real-time kernel can write at any time. What
 * is read from it is read once, and checked before it becomes an index.
 *
 * Functions that return "ring" tell the caller to ring the doorbell of the
 * slot's CPU (crtos_core_cpu()).
 */
#ifndef CRTOS_CHANNEL_CORE_H
#define CRTOS_CHANNEL_CORE_H

#ifdef __KERNEL__
#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/types.h>
#else
#include "channel_host.h"
#endif

#include "abi.h"

/* A request, copied out of its slot. */
struct crtos_core_request {
	u32 op;
	u32 nr;
	u64 args[6];
};

/* Who owns a new slot. */
struct crtos_core_owner {
	u32 process;
	u32 pid;
	u32 tid;
	u32 uid;
	u32 parent;
};

/* A range that Linux has to let go. */
struct crtos_core_drop {
	u32 index;
	u64 start;
	u64 length;
};

static inline void crtos_core_or32(u32 *word, u32 bits)
{
	u32 old = READ_ONCE(*word);

	while (!try_cmpxchg(word, &old, old | bits))
		;
}

static inline void crtos_core_and32(u32 *word, u32 bits)
{
	u32 old = READ_ONCE(*word);

	while (!try_cmpxchg(word, &old, old & bits))
		;
}

static inline void crtos_core_or64(u64 *word, u64 bits)
{
	u64 old = READ_ONCE(*word);

	while (!try_cmpxchg(word, &old, old | bits))
		;
}

static inline void crtos_core_clear64(u64 *word, u64 bits)
{
	u64 old = READ_ONCE(*word);

	while (!try_cmpxchg(word, &old, old & ~bits))
		;
}

/* The caller's CPU, as an index in the cell. */
static inline u32 crtos_core_cpu(struct crtos_channel *channel, u32 slot)
{
	return READ_ONCE(channel->slots[slot].cpu) % CRTOS_MAX_CELL_CPUS;
}

/* Does the owner of @slot outrank what its CPU runs? */
static inline bool crtos_core_outranks(struct crtos_channel *channel, u32 slot)
{
	u32 mine = READ_ONCE(channel->slots[slot].rank);
	u32 running = READ_ONCE(channel->ranks[crtos_core_cpu(channel, slot)]);

	return mine > running || (mine == running && running <= CRTOS_RANK_NORMAL);
}

/* Sets the slot's bit after something was stored for the kernel. */
static inline void crtos_core_post(struct crtos_channel *channel, u32 slot)
{
	crtos_core_or64(&channel->replies[slot / 64], 1ull << (slot % 64));
	smp_mb();
}

/* Hands the slot to the kernel. Returns whether to ring. */
static inline bool crtos_core_hand_over(struct crtos_channel *channel, u32 slot, u32 state)
{
	smp_store_release(&channel->slots[slot].state, state);
	crtos_core_post(channel, slot);
	return crtos_core_outranks(channel, slot);
}

static inline u32 crtos_core_state(struct crtos_channel *channel, u32 slot)
{
	return smp_load_acquire(&channel->slots[slot].state);
}

/* The shadow thread of @slot is about to wait, on @cpu if nobody moves it. */
static inline void crtos_core_waits_on(struct crtos_channel *channel, u32 slot, u32 cpu)
{
	u32 *waits_on = &channel->slots[slot].waits_on;

	if (READ_ONCE(*waits_on) != cpu)
		WRITE_ONCE(*waits_on, cpu);
}

/* A slot at or behind @from that the kernel is done with, or CRTOS_SLOTS. */
static inline u32 crtos_core_free_slot(struct crtos_channel *channel, u32 from)
{
	u32 slot;

	for (slot = from; slot < CRTOS_SLOTS; slot++)
		if (crtos_core_state(channel, slot) == CRTOS_SLOT_FREE)
			break;
	return slot;
}

/*
 * Takes a free slot into use: @state is SPAWN for a process's first thread,
 * READY for further ones. Always ring.
 */
static inline void crtos_core_open(struct crtos_channel *channel, u32 slot, u32 state,
				   const struct crtos_core_owner *owner)
{
	struct crtos_slot *s = &channel->slots[slot];

	WRITE_ONCE(s->process, owner->process);
	WRITE_ONCE(s->pid, owner->pid);
	WRITE_ONCE(s->tid, owner->tid);
	WRITE_ONCE(s->uid, owner->uid);
	WRITE_ONCE(s->parent, owner->parent);
	WRITE_ONCE(s->notices, 0);
	crtos_core_hand_over(channel, slot, state);
}

/* Takes the request of a slot, if there is one. */
static inline bool crtos_core_take_request(struct crtos_channel *channel, u32 slot,
					   struct crtos_core_request *request)
{
	struct crtos_slot *s = &channel->slots[slot];
	int i;

	if (crtos_core_state(channel, slot) != CRTOS_SLOT_REQUEST)
		return false;
	request->op = READ_ONCE(s->op);
	request->nr = READ_ONCE(s->nr);
	for (i = 0; i < 6; i++)
		request->args[i] = READ_ONCE(s->args[i]);
	smp_store_release(&s->state, CRTOS_SLOT_BUSY);
	return true;
}

/* Delivers the result of a request. Returns whether to ring. */
static inline bool crtos_core_reply(struct crtos_channel *channel, u32 slot, s64 result)
{
	WRITE_ONCE(channel->slots[slot].result, result);
	return crtos_core_hand_over(channel, slot, CRTOS_SLOT_REPLY);
}

/* Asks for the page at @address. Returns whether to ring. */
static inline bool crtos_core_ask(struct crtos_channel *channel, u32 slot, u64 address,
				  bool write)
{
	struct crtos_slot *s = &channel->slots[slot];

	WRITE_ONCE(s->fault_address, address);
	WRITE_ONCE(s->fault_flags, write ? CRTOS_FAULT_WRITE : 0);
	return crtos_core_hand_over(channel, slot, CRTOS_SLOT_FAULT);
}

/* Takes the answer of the kernel, if there is one. */
static inline bool crtos_core_take_answer(struct crtos_channel *channel, u32 slot, u64 *answer)
{
	struct crtos_slot *s = &channel->slots[slot];

	if (crtos_core_state(channel, slot) != CRTOS_SLOT_ANSWER)
		return false;
	*answer = READ_ONCE(s->answer);
	smp_store_release(&s->state, CRTOS_SLOT_BUSY);
	return true;
}

/*
 * Splits an answer into the offset in a pool of @pool_size bytes and whether
 * Linux may write. Returns false if it is no page that may be mapped.
 */
static inline bool crtos_core_check_answer(u64 answer, u64 pool_size, bool write,
					   u64 *offset, bool *writable)
{
	u64 page = answer & ~(u64)(CRTOS_PAGE_SIZE - 1);

	if (answer == CRTOS_ANSWER_BAD || page < CRTOS_SHARED_POOL ||
	    page - CRTOS_SHARED_POOL >= pool_size)
		return false;
	*offset = page - CRTOS_SHARED_POOL;
	*writable = answer & CRTOS_ANSWER_WRITE;
	return *writable || !write;
}

/* Tells the kernel something about a slot that it may own. Always ring. */
static inline void crtos_core_notice(struct crtos_channel *channel, u32 slot, u32 notice)
{
	crtos_core_or32(&channel->slots[slot].notices, notice);
	crtos_core_post(channel, slot);
}

/*
 * A signal with the siginfo @info arrived at @slot. Always ring. False, with
 * nothing done, while the kernel has not taken the last one. One caller at a time.
 */
static inline bool crtos_core_signal(struct crtos_channel *channel, u32 slot, const u64 *info)
{
	struct crtos_slot *s = &channel->slots[slot];
	int i;

	if (smp_load_acquire(&s->notices) & CRTOS_SLOT_SIGNAL)
		return false;
	for (i = 0; i < 6; i++)
		WRITE_ONCE(s->info[i], info[i]);
	crtos_core_notice(channel, slot, CRTOS_SLOT_SIGNAL);
	return true;
}

/* The shadow thread of @slot goes on after CRTOS_SLOT_STOPPED. Always ring. */
static inline void crtos_core_continue(struct crtos_channel *channel, u32 slot)
{
	crtos_core_and32(&channel->slots[slot].notices, ~CRTOS_SLOT_STOPPED);
	crtos_core_post(channel, slot);
}

/* The slots of word @word whose bits the kernel set since the last look. */
static inline u64 crtos_core_requests(struct crtos_channel *channel, u32 word)
{
	return READ_ONCE(channel->requests[word]) ? xchg(&channel->requests[word], 0) : 0;
}

/* Does the kernel want the system call of the slot's thread to end? */
static inline bool crtos_core_take_interrupt(struct crtos_channel *channel, u32 slot)
{
	u32 *interrupt = &channel->slots[slot].interrupt;

	return READ_ONCE(*interrupt) && xchg(interrupt, 0);
}

/* Number of drops that wait, when @finished were carried out since the start. */
static inline u32 crtos_core_drops_posted(struct crtos_channel *channel, u32 finished)
{
	return READ_ONCE(channel->posted_count) - finished;
}

/*
 * Takes a posted drop of @process at or behind *@cursor, which moves on.
 * Those of one process are taken by one caller at a time.
 */
static inline bool crtos_core_take_drop(struct crtos_channel *channel, u32 *cursor,
					u32 process, struct crtos_core_drop *taken)
{
	while (*cursor < CRTOS_DROPS) {
		u32 index = *cursor;
		u64 bits = READ_ONCE(channel->posted[index / 64]) >> (index % 64);
		struct crtos_drop *drop;

		if (!bits) {
			*cursor = (index / 64 + 1) * 64;
			continue;
		}
		index += __ffs(bits);
		*cursor = index + 1;
		drop = &channel->drops[index];
		if (smp_load_acquire(&drop->state) != CRTOS_DROP_POSTED ||
		    READ_ONCE(drop->process) != process)
			continue;
		crtos_core_clear64(&channel->posted[index / 64], 1ull << (index % 64));
		taken->index = index;
		taken->start = READ_ONCE(drop->start);
		taken->length = READ_ONCE(drop->length);
		return true;
	}
	return false;
}

/* Is that a range of a program's address space? */
static inline bool crtos_core_check_drop(const struct crtos_core_drop *drop)
{
	return !((drop->start | drop->length) & (CRTOS_PAGE_SIZE - 1)) && drop->length &&
	       drop->start < CRTOS_USER_END && drop->length <= CRTOS_USER_END - drop->start;
}

/* Puts a drop back that could not be carried out for now. */
static inline void crtos_core_repost_drop(struct crtos_channel *channel, u32 index)
{
	crtos_core_or64(&channel->posted[index / 64], 1ull << (index % 64));
}

/* Linux has let go. */
static inline void crtos_core_drop_done(struct crtos_channel *channel, u32 index)
{
	smp_store_release(&channel->drops[index].state, CRTOS_DROP_DONE);
}

#endif /* CRTOS_CHANNEL_CORE_H */
