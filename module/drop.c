// SPDX-License-Identifier: GPL-2.0-only
/*
 * Drops: ranges of a process that the real-time kernel wants back. A drop is
 * done when nothing of the range is mapped or pinned in Linux any more.
 *
 * A page fault that got its answer before the drop may still be about to map
 * the page. It records the page and maps it under the page's lock, unless a drop
 * began since it asked (drops_begun). So whoever counts the drop, then takes the
 * recorded pages and each page's lock once, and unmaps only then, misses none.
 */
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/slab.h>

#include "crtos.h"
#include "realm.h"

/* A drop that waits for pins. */
struct pinned_drop {
	struct list_head link;
	u32 index;
	u32 count;
	struct page *pages[];
};

/* Number of drops of all processes that wait, or that somebody carries out right now. */
u32 crtos_drops_posted(struct crtos_realm *realm)
{
	return crtos_core_drops_posted(realm->channel, atomic_read(&realm->drops_finished));
}

/* A drop has been carried out but for pages that are pinned. */
static void finish(struct crtos_realm *realm)
{
	atomic_inc(&realm->drops_finished);
}

/*
 * Does anybody but the pool and page tables hold the page? A page that is being
 * mapped or unmapped right now may count as pinned.
 */
bool crtos_page_pinned(struct page *page)
{
	int mappings = atomic_read(&page->_mapcount) + 1;

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
	process->drops_begun++;
	xa_for_each_range(&process->pages, index, entry, first, last)
		count++;
	xa_unlock(&process->pages);
	return count;
}

/* Moves the recorded pages of a range to @drop, at most @room. */
static void collect_pages(struct crtos_process *process, struct pinned_drop *drop, u32 room,
			  unsigned long first, unsigned long last)
{
	unsigned long index;
	void *entry;

	xa_for_each_range(&process->pages, index, entry, first, last) {
		struct page *page = xa_untag_pointer(entry);

		if (drop->count == room)
			break;
		lock_page(page);
		if (xa_cmpxchg(&process->pages, index, entry, NULL, 0) == entry)
			drop->pages[drop->count++] = page;
		unlock_page(page);
	}
}

static void unmap(struct crtos_process *process, u64 start, u64 length)
{
	if (atomic_read(&process->mappings))
		unmap_mapping_range(process->inode->i_mapping,
				    (loff_t)process->number << 47 | start, length, 1);
}

/* Forgets the pages that are not pinned. Returns whether none is left. */
static bool settle(struct pinned_drop *drop)
{
	u32 i, left = 0;

	for (i = 0; i < drop->count; i++)
		if (crtos_page_pinned(drop->pages[i]))
			drop->pages[left++] = drop->pages[i];
	drop->count = left;
	return !left;
}

/* Carries out one drop, as far as possible. The caller holds drop_lock. */
static void carry_out(struct crtos_process *process, const struct crtos_core_drop *range)
{
	struct crtos_channel *channel = process->realm->channel;
	unsigned long first = range->start >> PAGE_SHIFT;
	unsigned long last = first + (range->length >> PAGE_SHIFT) - 1;
	struct pinned_drop *drop;
	bool complete;
	u32 room;

	if (!crtos_core_check_drop(range)) {
		crtos_core_drop_done(channel, range->index);
		finish(process->realm);
		return;
	}
	room = count_pages(process, first, last);
	drop = kvmalloc(struct_size(drop, pages, room), GFP_KERNEL);
	if (!drop) {
		/* Nothing is forgotten: the next round counts and unmaps again. */
		unmap(process, range->start, range->length);
		crtos_core_repost_drop(channel, range->index);
		return;
	}
	drop->index = range->index;
	drop->count = 0;
	collect_pages(process, drop, room, first, last);
	unmap(process, range->start, range->length);
	complete = settle(drop);
	if (complete) {
		crtos_core_drop_done(channel, drop->index);
		kvfree(drop);
	} else {
		list_add_tail(&drop->link, &process->pinned);
	}
	finish(process->realm);
}

/*
 * Carries out all posted drops of the process, and looks again at those that
 * wait for pins. May sleep. Those that still wait are the reaper's.
 */
void crtos_drops_run(struct crtos_process *process)
{
	struct crtos_channel *channel = process->realm->channel;
	struct pinned_drop *drop, *next;
	struct crtos_core_drop range;
	u32 cursor = 0;

	if (!crtos_drops_posted(process->realm) && list_empty_careful(&process->pinned))
		return;
	mutex_lock(&process->drop_lock);
	list_for_each_entry_safe(drop, next, &process->pinned, link) {
		if (!settle(drop))
			continue;
		list_del(&drop->link);
		crtos_core_drop_done(channel, drop->index);
		kvfree(drop);
	}
	while (crtos_core_take_drop(channel, &cursor, process->number, &range))
		carry_out(process, &range);
	if (!list_empty(&process->pinned))
		queue_delayed_work(crtos.work, &process->reap, 1);
	mutex_unlock(&process->drop_lock);
}

/* Does a drop of the process wait for pins? */
bool crtos_drops_pending(struct crtos_process *process)
{
	return !list_empty_careful(&process->pinned);
}

/* Is anything that the process was given still pinned? */
bool crtos_pages_pinned(struct crtos_process *process)
{
	unsigned long index;
	void *entry;

	if (crtos_drops_pending(process))
		return true;
	xa_for_each(&process->pages, index, entry)
		if (crtos_page_pinned(xa_untag_pointer(entry)))
			return true;
	return false;
}

/* The process is over and uses nothing: whatever is still posted is done. */
void crtos_drops_finish(struct crtos_process *process)
{
	struct crtos_channel *channel = process->realm->channel;
	struct crtos_core_drop range;
	u32 cursor = 0;

	while (crtos_core_take_drop(channel, &cursor, process->number, &range)) {
		crtos_core_drop_done(channel, range.index);
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

/*
 * Drops that were posted while their process was given back are done as well.
 * The caller holds the realm's lock.
 */
void crtos_drops_orphans(struct crtos_realm *realm)
{
	struct crtos_channel *channel = realm->channel;
	struct crtos_core_drop range;
	u32 word, bit, index, number;

	for (word = 0; word < CRTOS_DROP_WORDS; word++) {
		u64 bits = READ_ONCE(channel->posted[word]);

		for (; bits; bits &= bits - 1) {
			bit = __ffs64(bits);
			index = word * 64 + bit;
			number = READ_ONCE(channel->drops[index].process);
			if (process_lives(realm, number) ||
			    !crtos_core_take_drop(channel, &index, number, &range))
				continue;
			crtos_core_drop_done(channel, range.index);
			finish(realm);
		}
	}
}
