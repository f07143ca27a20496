/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Linux's end of the channel: transitions of slots, bitmaps, the rank rule, the
 * table of revocations. lib/abi/src/channel.rs describes the protocol.
 *
 * This file needs integers and atomics only, so that tests can compile it on a
 * host (see channel_host.h) and run it against the kernel's end. Nothing here
 * sleeps, locks or allocates; any context.
 *
 * The channel is memory that the real-time kernel can write at any time. What
 * is read from it is read once, and checked before it becomes an index. So every
 * access is a READ_ONCE(), a WRITE_ONCE() or an atomic one; where the order
 * counts, a comment names the function of the other end, in lib/channel/src or in
 * the real-time kernel.
 *
 * Functions that return "ring" tell the caller to ring the doorbell, on the CPU
 * that crtos_channel_target() names.
 */
#ifndef CRTOS_CHANNEL_H
#define CRTOS_CHANNEL_H

#ifdef __KERNEL__
#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/types.h>
#else
#include "channel_host.h"
#endif

#include "abi.h"

/* A request, copied out of its slot. */
struct crtos_request {
	u32 op;
	u32 nr;
	u64 args[6];
};

/* The owner of a new slot. */
struct crtos_slot_owner {
	u32 process;
	u32 pid;
	u32 tid;
	u32 uid;
	u32 parent;
	u32 heritage;	/* of a further thread */
	u32 payer;	/* of the first one of a process */
	u32 doubts;	/* about its ids */
	u32 pid_namespace;
	u32 own_tid;
};

/* A range that Linux has to let go, as its entry says. */
struct crtos_revoked_range {
	u32 index;
	u64 start;
	u64 length;
};

/* The atomic operations below are full barriers: Linux's try_cmpxchg() and xchg() are. */

static inline void crtos_channel_or32(u32 *word, u32 bits)
{
	u32 old = READ_ONCE(*word);

	while (!try_cmpxchg(word, &old, old | bits))
		;
}

static inline void crtos_channel_and32(u32 *word, u32 bits)
{
	u32 old = READ_ONCE(*word);

	while (!try_cmpxchg(word, &old, old & bits))
		;
}

static inline void crtos_channel_or64(u64 *word, u64 bits)
{
	u64 old = READ_ONCE(*word);

	while (!try_cmpxchg(word, &old, old | bits))
		;
}

static inline void crtos_channel_clear64(u64 *word, u64 bits)
{
	u64 old = READ_ONCE(*word);

	while (!try_cmpxchg(word, &old, old & ~bits))
		;
}

/**
 * crtos_channel_put_question() - ask the kernel
 * @question: what is asked: a field of the channel
 *
 * The doorbell of the cell's first CPU has to be rung next.
 *
 * Return: the number of the question.
 */
static inline u32 crtos_channel_put_question(struct crtos_question *question)
{
	/* Stored by answer() of lib/channel. */
	u32 number = READ_ONCE(question->answered) + 1;

	/* Pairs with asked() of lib/channel. */
	smp_store_release(&question->asked, number);
	return number;
}

/**
 * crtos_channel_is_answered() - has the kernel answered?
 * @question: what was asked
 * @number: the number of the question
 *
 * Return: whether it has; then what it did is seen.
 */
static inline bool crtos_channel_is_answered(struct crtos_question *question, u32 number)
{
	/* Pairs with answer() of lib/channel. */
	return smp_load_acquire(&question->answered) == number;
}

/**
 * crtos_channel_target() - the CPU to ring for a slot's thread
 * @channel: the channel
 * @slot: number of the slot, below CRTOS_SLOTS
 * @wanted: where to store whether the thread may run there: nothing outranks it
 *
 * That is the CPU on which the thread was, or where less runs if something there
 * is not outranked. lib/channel/src/rank.rs has the rule.
 *
 * Return: the CPU's index in the cell, in range whatever the kernel stored.
 */
static inline u32 crtos_channel_target(struct crtos_channel *channel, u32 slot, bool *wanted)
{
	/*
	 * Stored by request() in the kernel's slot before it handed the slot over, the rank
	 * also by set_rank() later.
	 */
	u32 own = READ_ONCE(channel->slots[slot].cpu) % CRTOS_MAX_CELL_CPUS;
	u32 mine = READ_ONCE(channel->slots[slot].rank);
	/* raise_rank() and lower_rank() of lib/channel; ordered by crtos_channel_post(). */
	u32 least = READ_ONCE(channel->ranks[own]);
	u32 target = own, cpu, rank;
	u32 count = mine > least ? 0 : CRTOS_MAX_CELL_CPUS;

	for (cpu = 0; cpu < count; cpu++) {
		rank = READ_ONCE(channel->ranks[cpu]);
		if (rank < least) {
			least = rank;
			target = cpu;
		}
	}
	*wanted = mine >= least;
	return target;
}

/* Sets the slot's bit after something was stored for the kernel. */
static inline void crtos_channel_post(struct crtos_channel *channel, u32 slot)
{
	/* After what was stored; pairs with take_reply() of lib/channel. */
	crtos_channel_or64(&channel->replies[slot / 64], 1ull << (slot % 64));
	/*
	 * The bit before the look at the ranks in crtos_channel_target(). Pairs
	 * with the fences of lower_rank() and set_rank() of lib/channel, before the
	 * kernel's replies::poll(): one of the two sees what the other stored.
	 */
	smp_mb();
}

/* Hands the slot to the kernel. Returns whether to ring. */
static inline bool crtos_channel_hand_over(struct crtos_channel *channel, u32 slot, u32 state)
{
	bool ring;

	/* After the slot's contents; pairs with accept() and poll() of the kernel's slot. */
	smp_store_release(&channel->slots[slot].state, state);
	crtos_channel_post(channel, slot);
	crtos_channel_target(channel, slot, &ring);
	return ring;
}

/**
 * crtos_channel_state() - the state of a slot
 * @channel: the channel
 * @slot: number of the slot
 *
 * What the kernel stored in the slot before it stored this state is visible then.
 *
 * Return: CRTOS_SLOT_*, or anything else if the kernel is broken.
 */
static inline u32 crtos_channel_state(struct crtos_channel *channel, u32 slot)
{
	/* Pairs with hand_over() and free() of the kernel's slot. */
	return smp_load_acquire(&channel->slots[slot].state);
}

/**
 * crtos_channel_waits_on() - say where the doorbell should ring
 * @channel: the channel
 * @slot: the slot whose shadow thread is about to wait
 * @cpu: the CPU of Linux on which it waits, if nobody moves it
 *
 * A hint that nothing depends on, so it is in no order with anything.
 */
static inline void crtos_channel_waits_on(struct crtos_channel *channel, u32 slot, u32 cpu)
{
	u32 *waits_on = &channel->slots[slot].waits_on;

	/* Mostly it is the same, and the line stays shared. Read by waits_on() of lib/channel. */
	if (READ_ONCE(*waits_on) != cpu)
		WRITE_ONCE(*waits_on, cpu);
}

/**
 * crtos_channel_free_slot() - find a slot that the kernel is done with
 * @channel: the channel
 * @from: where to begin
 *
 * Return: the first free slot at or behind @from, or CRTOS_SLOTS.
 */
static inline u32 crtos_channel_free_slot(struct crtos_channel *channel, u32 from)
{
	u32 slot;

	for (slot = from; slot < CRTOS_SLOTS; slot++)
		if (crtos_channel_state(channel, slot) == CRTOS_SLOT_FREE)
			break;
	return slot;
}

/**
 * crtos_channel_open() - take a free slot into use
 * @channel: the channel
 * @slot: the slot; one caller at a time
 * @state: CRTOS_SLOT_SPAWN for the first thread of a process, CRTOS_SLOT_READY
 *	for further ones
 * @owner: who owns it
 *
 * The caller rings in any case.
 */
static inline void crtos_channel_open(struct crtos_channel *channel, u32 slot, u32 state,
				      const struct crtos_slot_owner *owner)
{
	struct crtos_slot *s = &channel->slots[slot];

	WRITE_ONCE(s->process, owner->process);
	WRITE_ONCE(s->pid, owner->pid);
	WRITE_ONCE(s->tid, owner->tid);
	WRITE_ONCE(s->uid, owner->uid);
	WRITE_ONCE(s->parent, owner->parent);
	WRITE_ONCE(s->heritage_or_payer,
		   state == CRTOS_SLOT_SPAWN ? owner->payer : owner->heritage);
	WRITE_ONCE(s->doubts, owner->doubts);
	WRITE_ONCE(s->pid_namespace, owner->pid_namespace);
	WRITE_ONCE(s->own_tid, owner->own_tid);
	WRITE_ONCE(s->notices, 0);
	crtos_channel_hand_over(channel, slot, state);
}

/**
 * crtos_channel_take_request() - take the request of a slot
 * @channel: the channel
 * @slot: the caller's own slot
 * @request: where the request is copied to
 *
 * Return: false if there is none.
 */
static inline bool crtos_channel_take_request(struct crtos_channel *channel, u32 slot,
					      struct crtos_request *request)
{
	struct crtos_slot *s = &channel->slots[slot];
	int i;

	if (crtos_channel_state(channel, slot) != CRTOS_SLOT_REQUEST)
		return false;
	request->op = READ_ONCE(s->op);
	request->nr = READ_ONCE(s->nr);
	for (i = 0; i < 6; i++)
		request->args[i] = READ_ONCE(s->args[i]);
	/* After the copy. The slot stays Linux's: the kernel only looks for REPLY and FAULT. */
	smp_store_release(&s->state, CRTOS_SLOT_BUSY);
	return true;
}

/**
 * crtos_channel_reply() - deliver the result of a request
 * @channel: the channel
 * @slot: the caller's own slot
 * @result: as a system call returns it
 *
 * Return: whether to ring.
 */
static inline bool crtos_channel_reply(struct crtos_channel *channel, u32 slot, s64 result)
{
	WRITE_ONCE(channel->slots[slot].result, result);
	return crtos_channel_hand_over(channel, slot, CRTOS_SLOT_REPLY);
}

/**
 * crtos_channel_reply_words() - the same, with words in place of the arguments
 * @channel: the channel
 * @slot: the caller's own slot
 * @result: as a system call returns it
 * @words: the words
 *
 * Return: whether to ring.
 */
static inline bool crtos_channel_reply_words(struct crtos_channel *channel, u32 slot, s64 result,
					     const u64 words[6])
{
	int i;

	for (i = 0; i < 6; i++)
		WRITE_ONCE(channel->slots[slot].args[i], words[i]);
	return crtos_channel_reply(channel, slot, result);
}

/**
 * crtos_channel_ask() - ask for the page at an address
 * @channel: the channel
 * @slot: the caller's own slot
 * @address: page-aligned address of the program
 * @write: whether Linux wants to write
 *
 * Return: whether to ring.
 */
static inline bool crtos_channel_ask(struct crtos_channel *channel, u32 slot, u64 address,
				     bool write)
{
	struct crtos_slot *s = &channel->slots[slot];

	WRITE_ONCE(s->fault_address, address);
	WRITE_ONCE(s->fault_flags, write ? CRTOS_FAULT_WRITE : 0);
	return crtos_channel_hand_over(channel, slot, CRTOS_SLOT_FAULT);
}

/**
 * crtos_channel_take_answer() - take the answer to a fault
 * @channel: the channel
 * @slot: the caller's own slot
 * @answer: where the answer is stored; see crtos_channel_check_answer()
 *
 * Return: false if there is none.
 */
static inline bool crtos_channel_take_answer(struct crtos_channel *channel, u32 slot, u64 *answer)
{
	struct crtos_slot *s = &channel->slots[slot];

	if (crtos_channel_state(channel, slot) != CRTOS_SLOT_ANSWER)
		return false;
	*answer = READ_ONCE(s->answer);
	/* As in crtos_channel_take_request(). */
	smp_store_release(&s->state, CRTOS_SLOT_BUSY);
	return true;
}

/**
 * crtos_channel_pool_page() - find a page of the pool
 * @address: where the kernel says that a page lies
 * @pool_size: bytes of the pool
 * @offset: where the page's offset in the pool is stored
 *
 * Return: false if there is none.
 */
static inline bool crtos_channel_pool_page(u64 address, u64 pool_size, u64 *offset)
{
	if (address % CRTOS_PAGE_SIZE || address < CRTOS_SHARED_POOL ||
	    address - CRTOS_SHARED_POOL >= pool_size)
		return false;
	*offset = address - CRTOS_SHARED_POOL;
	return true;
}

/**
 * crtos_channel_place() - find a place of the share window
 * @address: where the kernel says that it lies
 * @place: where its number is stored, below CRTOS_PLACES
 *
 * Return: false if there is none.
 */
static inline bool crtos_channel_place(u64 address, u32 *place)
{
	if (address % CRTOS_PAGE_SIZE || address < CRTOS_SHARE_WINDOW ||
	    address >= CRTOS_SHARE_WINDOW_END)
		return false;
	*place = (address - CRTOS_SHARE_WINDOW) / CRTOS_PAGE_SIZE;
	return true;
}

/* What the kernel answers to a fault. */
struct crtos_answer {
	u64 offset;		/* of the page in the pool, unless it is at a place */
	u32 place;
	bool at_place;
	bool writable;		/* Linux may write */
};

/**
 * crtos_channel_check_answer() - split an answer
 * @word: what the kernel answered
 * @pool_size: bytes of the pool
 * @write: whether Linux wants to write
 * @answer: where it is stored
 *
 * Return: false if it is no page that may be mapped.
 */
static inline bool crtos_channel_check_answer(u64 word, u64 pool_size, bool write,
					      struct crtos_answer *answer)
{
	u64 page = word & ~(u64)(CRTOS_PAGE_SIZE - 1);

	if (word == CRTOS_ANSWER_BAD)
		return false;
	answer->at_place = crtos_channel_place(page, &answer->place);
	if (!answer->at_place && !crtos_channel_pool_page(page, pool_size, &answer->offset))
		return false;
	answer->writable = word & CRTOS_ANSWER_WRITE;
	return answer->writable || !write;
}

/**
 * crtos_channel_recall() - say that the file of a place has lost the page
 * @channel: the channel
 * @place: number of the place
 *
 * The question recall has to be asked next.
 */
static inline void crtos_channel_recall(struct crtos_channel *channel, u32 place)
{
	/* Pairs with recalled() of lib/channel. */
	crtos_channel_or64(&channel->recalled[place / 64], 1ull << (place % 64));
}

/**
 * crtos_channel_forget_recall() - a place has no page any more
 * @channel: the channel
 * @place: number of the place
 */
static inline void crtos_channel_forget_recall(struct crtos_channel *channel, u32 place)
{
	crtos_channel_clear64(&channel->recalled[place / 64], 1ull << (place % 64));
}

/**
 * crtos_channel_ask_recall() - have the kernel look which places are recalled
 * @channel: the channel
 *
 * Not as crtos_channel_put_question(): the kernel may be looking just now, and then looks again.
 * One caller at a time. The doorbell has to be rung next.
 */
static inline void crtos_channel_ask_recall(struct crtos_channel *channel)
{
	/* Pairs with asked() of lib/channel. */
	smp_store_release(&channel->recall.asked, READ_ONCE(channel->recall.asked) + 1);
}

/**
 * crtos_channel_given_up() - take places that the kernel has given up
 * @channel: the channel
 * @word: index of 64 places
 *
 * Return: a bit for each.
 */
static inline u64 crtos_channel_given_up(struct crtos_channel *channel, u32 word)
{
	/* Pairs with give_up() of lib/channel. */
	return READ_ONCE(channel->given_up[word]) ? xchg(&channel->given_up[word], 0) : 0;
}

/**
 * crtos_channel_notice() - tell the kernel something about a slot
 * @channel: the channel
 * @slot: the slot, whoever owns it
 * @notice: CRTOS_SLOT_GONE, CRTOS_SLOT_SIGNAL, CRTOS_SLOT_STOPPED or CRTOS_SLOT_LEAVING
 *
 * The caller rings in any case.
 */
static inline void crtos_channel_notice(struct crtos_channel *channel, u32 slot, u32 notice)
{
	/* A full barrier after what the notice is about; pairs with notices() of lib/channel. */
	crtos_channel_or32(&channel->slots[slot].notices, notice);
	crtos_channel_post(channel, slot);
}

/**
 * crtos_channel_signal() - hand over a signal
 * @channel: the channel
 * @slot: the slot at whose shadow thread it arrived; one caller at a time
 * @info: the start of its siginfo
 *
 * The caller rings if it was handed over.
 *
 * Return: false, with nothing done, while the kernel has not taken the last one.
 */
static inline bool crtos_channel_signal(struct crtos_channel *channel, u32 slot, const u64 *info)
{
	struct crtos_slot *s = &channel->slots[slot];
	int i;

	/* Pairs with take_signal() of lib/channel, which clears the notice after its copy. */
	if (smp_load_acquire(&s->notices) & CRTOS_SLOT_SIGNAL)
		return false;
	for (i = 0; i < 6; i++)
		WRITE_ONCE(s->info[i], info[i]);
	crtos_channel_notice(channel, slot, CRTOS_SLOT_SIGNAL);
	return true;
}

/**
 * crtos_channel_continue() - take CRTOS_SLOT_STOPPED back
 * @channel: the channel
 * @slot: the slot whose shadow thread goes on
 *
 * The caller rings in any case.
 */
static inline void crtos_channel_continue(struct crtos_channel *channel, u32 slot)
{
	crtos_channel_and32(&channel->slots[slot].notices, ~CRTOS_SLOT_STOPPED);
	crtos_channel_post(channel, slot);
}

/**
 * crtos_channel_runs() - does the realm have a thread for a slot that may still run?
 * @channel: the channel
 * @slot: the slot
 *
 * Return: whether it is so. What the thread did before it is not so is seen then.
 */
static inline bool crtos_channel_runs(struct crtos_channel *channel, u32 slot)
{
	/* Pairs with publish() of lib/channel. */
	u32 state = smp_load_acquire(&channel->slots[slot].thread_state);

	return state != CRTOS_THREAD_NONE && state != CRTOS_THREAD_EXITED;
}

/**
 * crtos_channel_requests() - take the bits that the kernel set
 * @channel: the channel
 * @word: index of 64 slots
 *
 * Return: a bit for each slot of these in which the kernel stored something since the last look.
 */
static inline u64 crtos_channel_requests(struct crtos_channel *channel, u32 word)
{
	/*
	 * The exchange is a full barrier: before the looks at who waits, and after
	 * mark_request() of lib/channel, which sets the bit after the slot's state.
	 */
	return READ_ONCE(channel->requests[word]) ? xchg(&channel->requests[word], 0) : 0;
}

/**
 * crtos_channel_take_interrupt() - does the kernel want a system call to end?
 * @channel: the channel
 * @slot: the slot whose shadow thread makes the call
 *
 * Return: true once for each time that the kernel asked, or for several.
 */
static inline bool crtos_channel_take_interrupt(struct crtos_channel *channel, u32 slot)
{
	u32 *interrupt = &channel->slots[slot].interrupt;

	/* Set by interrupt() of lib/channel before the slot's bit, which the caller has taken. */
	return READ_ONCE(*interrupt) && xchg(interrupt, 0);
}

/**
 * crtos_channel_revocations_posted() - count revocations that wait
 * @channel: the channel
 * @finished: how many were carried out since the start
 *
 * Return: their number, modulo 2^32.
 */
static inline u32 crtos_channel_revocations_posted(struct crtos_channel *channel, u32 finished)
{
	/*
	 * Counted by the kernel's post() before it hands over a request: whoever has
	 * taken a request (crtos_channel_state()) sees what was posted before that.
	 */
	return READ_ONCE(channel->posted_count) - finished;
}

/**
 * crtos_channel_take_revocation() - take a revocation of a process
 * @channel: the channel
 * @cursor: where to look from; moves on
 * @process: number of the process; one caller at a time for each process
 * @taken: where the range is copied to
 *
 * Return: false if there is none at or behind the cursor.
 */
static inline bool crtos_channel_take_revocation(struct crtos_channel *channel, u32 *cursor,
						 u32 process,
						 struct crtos_revoked_range *taken)
{
	while (*cursor < CRTOS_REVOCATIONS) {
		u32 index = *cursor;
		u64 bits = READ_ONCE(channel->posted[index / 64]) >> (index % 64);
		struct crtos_revocation *entry;

		if (!bits) {
			*cursor = (index / 64 + 1) * 64;
			continue;
		}
		index += __ffs(bits);
		*cursor = index + 1;
		entry = &channel->revocations[index];
		/* Pairs with the kernel's post(), which stores the state after the entry. */
		if (smp_load_acquire(&entry->state) != CRTOS_REVOCATION_POSTED ||
		    READ_ONCE(entry->process) != process)
			continue;
		crtos_channel_clear64(&channel->posted[index / 64], 1ull << (index % 64));
		taken->index = index;
		taken->start = READ_ONCE(entry->start);
		taken->length = READ_ONCE(entry->length);
		return true;
	}
	return false;
}

/**
 * crtos_channel_check_range() - is that a range of a program's address space?
 * @range: what an entry says
 *
 * Return: true if it is whole pages of addresses that a program may have.
 */
static inline bool crtos_channel_check_range(const struct crtos_revoked_range *range)
{
	return !((range->start | range->length) & (CRTOS_PAGE_SIZE - 1)) && range->length &&
	       range->start < CRTOS_USER_END && range->length <= CRTOS_USER_END - range->start;
}

/**
 * crtos_channel_repost_revocation() - put a revocation back
 * @channel: the channel
 * @index: the entry, which could not be carried out for now
 */
static inline void crtos_channel_repost_revocation(struct crtos_channel *channel, u32 index)
{
	crtos_channel_or64(&channel->posted[index / 64], 1ull << (index % 64));
}

/**
 * crtos_channel_revocation_done() - Linux has let go
 * @channel: the channel
 * @index: the entry; nothing of its range is mapped or pinned any more
 */
static inline void crtos_channel_revocation_done(struct crtos_channel *channel, u32 index)
{
	/* After all uses of the pages; pairs with the kernel's collect(), which frees them. */
	smp_store_release(&channel->revocations[index].state, CRTOS_REVOCATION_DONE);
}

#endif /* CRTOS_CHANNEL_H */
