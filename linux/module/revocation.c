// SPDX-License-Identifier: GPL-2.0-only
/*
 * Revocations: ranges of a process that the real-time kernel wants back. A revocation is
 * done when nothing of the range is mapped or pinned in Linux any more.
 *
 * A page fault that got its answer before the revocation may still be about to map
 * the page. It records the page and maps it under the page's lock, unless a revocation
 * began since it asked (revocations_begun). So whoever counts the revocation, then takes the
 * recorded pages and each page's lock once, and unmaps only then, misses none.
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/slab.h>

#include "crtos.h"
#include "realm.h"

/* A revocation that waits for pins. */
struct pinned_revocation {
	struct list_head link;
	u32 index;
	u32 count;
	struct page *pages[];
};

/**
 * crtos_revocations_posted() - count revocations of all processes
 * @realm: the realm
 *
 * Context: Any.
 * Return: how many wait, or are carried out right now.
 */
u32 crtos_revocations_posted(struct crtos_realm *realm)
{
	u32 finished = atomic_read(&realm->revocations_finished);

	return crtos_channel_revocations_posted(realm->channel, finished);
}

/* A revocation has been carried out but for pages that are pinned. */
static void finish(struct crtos_realm *realm)
{
	atomic_inc(&realm->revocations_finished);
}

/**
 * crtos_page_pinned() - does anybody but the pool and page tables hold the page?
 * @page: a page of the pool
 *
 * Context: Any.
 * Return: true if it is pinned. A page that is being mapped or unmapped right now
 * may count as pinned, and a pinned one never as not pinned.
 */
bool crtos_page_pinned(struct page *page)
{
	int mappings = atomic_read(&page->_mapcount) + 1;

	/*
	 * Linux takes the reference of a mapping before it counts the mapping, and
	 * gives it back after: in this order there are never fewer references
	 * than mappings. Pairs with the atomic operations of its rmap.
	 */
	smp_rmb();
	return page_ref_count(page) > 1 + mappings;
}

/* Counts the recorded pages of a range, while nobody records any more. */
static u32 count_pages(struct crtos_process *process, unsigned long first, unsigned long last)
{
	unsigned long index;
	u32 count = 0;
	void *entry;

	xa_lock(&process->pages);
	process->revocations_begun++;
	xa_for_each_range(&process->pages, index, entry, first, last)
		count++;
	xa_unlock(&process->pages);
	return count;
}

/* Moves the recorded pages of a range to @pinned, at most @room. */
static void collect_pages(struct crtos_process *process, struct pinned_revocation *pinned, u32 room,
			  unsigned long first, unsigned long last)
{
	unsigned long index;
	void *entry;

	xa_for_each_range(&process->pages, index, entry, first, last) {
		struct page *page = xa_untag_pointer(entry);

		if (pinned->count == room)
			break;
		lock_page(page);
		if (xa_cmpxchg(&process->pages, index, entry, NULL, 0) == entry)
			pinned->pages[pinned->count++] = page;
		unlock_page(page);
	}
}

static void unmap(struct crtos_process *process, u64 start, u64 length)
{
	if (atomic_read(&process->mappings))
		unmap_mapping_range(crtos_process_mapping(process),
				    (loff_t)process->number << 47 | start, length, 1);
}

/* Forgets the pages that are not pinned. Returns whether none is left. */
static bool settle(struct pinned_revocation *pinned)
{
	u32 i, left = 0;

	for (i = 0; i < pinned->count; i++)
		if (crtos_page_pinned(pinned->pages[i]))
			pinned->pages[left++] = pinned->pages[i];
	pinned->count = left;
	return !left;
}

/* Carries out one revocation as far as possible. The caller holds revocation_lock. */
static void carry_out(struct crtos_process *process, const struct crtos_revoked_range *range)
{
	struct crtos_channel *channel = process->realm->channel;
	unsigned long first = range->start >> PAGE_SHIFT;
	unsigned long last = first + (range->length >> PAGE_SHIFT) - 1;
	struct pinned_revocation *pinned;
	bool complete;
	u32 room;

	if (!crtos_channel_check_range(range)) {
		crtos_channel_revocation_done(channel, range->index);
		finish(process->realm);
		return;
	}
	room = count_pages(process, first, last);
	pinned = kvmalloc(struct_size(pinned, pages, room), GFP_KERNEL);
	if (!pinned) {
		/* Nothing is forgotten: the next round counts and unmaps again. */
		unmap(process, range->start, range->length);
		crtos_channel_repost_revocation(channel, range->index);
		return;
	}
	pinned->index = range->index;
	pinned->count = 0;
	collect_pages(process, pinned, room, first, last);
	unmap(process, range->start, range->length);
	complete = settle(pinned);
	if (complete) {
		crtos_channel_revocation_done(channel, pinned->index);
		kvfree(pinned);
	} else {
		list_add_tail(&pinned->link, &process->pinned);
	}
	finish(process->realm);
}

/**
 * crtos_revocations_run() - carry out all posted revocations of a process
 * @process: the process
 *
 * Looks again at those that wait for pins as well. Those that still wait then are
 * left to the process's work item.
 *
 * Context: May sleep. Takes no mmap_lock: a fault that holds it may be waiting for
 * the kernel, and that for revocations.
 */
void crtos_revocations_run(struct crtos_process *process)
{
	struct crtos_channel *channel = process->realm->channel;
	struct pinned_revocation *pinned, *next;
	struct crtos_revoked_range range;
	u32 cursor = 0;

	if (!crtos_revocations_posted(process->realm) && list_empty_careful(&process->pinned))
		return;
	mutex_lock(&process->revocation_lock);
	list_for_each_entry_safe(pinned, next, &process->pinned, link) {
		if (!settle(pinned))
			continue;
		list_del(&pinned->link);
		crtos_channel_revocation_done(channel, pinned->index);
		kvfree(pinned);
	}
	while (crtos_channel_take_revocation(channel, &cursor, process->number, &range))
		carry_out(process, &range);
	if (!list_empty(&process->pinned))
		queue_delayed_work(crtos.work, &process->reap, 1);
	mutex_unlock(&process->revocation_lock);
}

/**
 * crtos_revocations_pending() - does a revocation of the process wait for pins?
 * @process: the process
 *
 * Context: Any; a hint without revocation_lock.
 * Return: true if one does.
 */
bool crtos_revocations_pending(struct crtos_process *process)
{
	return !list_empty_careful(&process->pinned);
}

/**
 * crtos_pages_pinned() - is anything that the process was given still pinned?
 * @process: the process, which is over and has no mappings
 *
 * Return: true if a page is.
 */
bool crtos_pages_pinned(struct crtos_process *process)
{
	unsigned long index;
	void *entry;

	if (crtos_revocations_pending(process))
		return true;
	xa_for_each(&process->pages, index, entry)
		if (crtos_page_pinned(xa_untag_pointer(entry)))
			return true;
	return false;
}

/**
 * crtos_revocations_finish() - all that is still posted for a process is done
 * @process: the process, which is over and uses nothing
 */
void crtos_revocations_finish(struct crtos_process *process)
{
	struct crtos_channel *channel = process->realm->channel;
	struct crtos_revoked_range range;
	u32 cursor = 0;

	while (crtos_channel_take_revocation(channel, &cursor, process->number, &range)) {
		crtos_channel_revocation_done(channel, range.index);
		finish(process->realm);
	}
}

static bool process_lives(struct crtos_realm *realm, u32 number)
{
	struct crtos_process *process;

	list_for_each_entry(process, &realm->processes, link)
		if (process->number == number)
			return true;
	return false;
}

/**
 * crtos_revocations_orphans() - revocations without a process are done
 * @realm: the realm
 *
 * They were posted while their process was given back.
 *
 * Context: Under realm_lock.
 */
void crtos_revocations_orphans(struct crtos_realm *realm)
{
	struct crtos_channel *channel = realm->channel;
	struct crtos_revoked_range range;
	u32 word, bit, index, number;

	for (word = 0; word < CRTOS_REVOCATION_WORDS; word++) {
		/* A hint; crtos_channel_take_revocation() looks at the entry. */
		u64 bits = READ_ONCE(channel->posted[word]);

		for (; bits; bits &= bits - 1) {
			bit = __ffs64(bits);
			index = word * 64 + bit;
			number = READ_ONCE(channel->revocations[index].process);
			if (process_lives(realm, number) ||
			    !crtos_channel_take_revocation(channel, &index, number, &range))
				continue;
			crtos_channel_revocation_done(channel, range.index);
			finish(realm);
		}
	}
}
