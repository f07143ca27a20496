// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages of Linux that the realm shares: those of files in memory (tmpfs, memfd, System V)
 * that programs of the realm have mapped shared.
 *
 * The realm sees such a page at a place of its share window. It stays pinned until the
 * real-time kernel has given the place up, and the hypervisor says that no CPU of the realm
 * reaches it: so nothing of Linux takes it from under a program there. Where the file loses
 * the page meanwhile (it is cut, or a hole is punched), the kernel hears of that, gives the
 * place up, and asks again.
 *
 * A mirror's watch, a notifier on its addresses, is what tells of such losses. A page is
 * noted at its place before the watch is asked whether something was lost meanwhile, and the
 * watch looks at all that is noted: so one of the two sees the other. The kernel keeps a page
 * for as long as anything of its file is mapped, also when nobody watches it. So whoever begins
 * to watch looks first for pages that are not the file's any more.
 */
#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/magic.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/stat.h>

#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

/* How often a call is made again that waits for CPUs of the realm, 50 us or more apart. */
#define TRIES		200

/* A page at a place of the share window. */
struct crtos_place {
	struct page *page;		/* pinned; NULL: none */
	struct address_space *mapping;	/* whose it was; compared, never used */
	pgoff_t index;
	bool writes;			/* the realm writes to it */
};

/* Tells what the file of a mirror loses. */
struct crtos_watch {
	struct mmu_interval_notifier notifier;
	struct kref ref;
	struct crtos_realm *realm;
	struct address_space *mapping;	/* of a file that is kept as long */
	u64 start;
	u64 length;
	pgoff_t first;
};

/**
 * crtos_sharable() - can Linux and the realm share the pages of the file?
 * @file: the file
 *
 * Context: Any.
 * Return: whether it is a file in memory, which is never written back: its pages can be pinned
 * for long.
 */
bool crtos_sharable(const struct file *file)
{
	const struct inode *inode = file_inode(file);

	return S_ISREG(inode->i_mode) && inode->i_sb->s_magic == TMPFS_MAGIC;
}

/*
 * Has the kernel look at what is recalled. It is asked at once, so that a program whose call cut
 * the file finds that asked when the call returns; the doorbell is for all others. Under
 * places_lock.
 */
static void ask_recall(struct crtos_realm *realm)
{
	crtos_channel_ask_recall(realm->channel);
	queue_work(crtos.work, &realm->recall);
}

/*
 * Says that places of a mapping, of these pages, have lost them: all, or those that are not the
 * file's any more. Under places_lock.
 */
static void recall(struct crtos_realm *realm, const struct address_space *mapping,
		   pgoff_t first, pgoff_t last, bool lost_only)
{
	bool any = false;
	u32 i;

	for (i = 0; i < realm->places_end; i++) {
		const struct crtos_place *place = &realm->places[i];

		if (!place->page || place->mapping != mapping || place->index < first ||
		    place->index > last)
			continue;
		if (lost_only && READ_ONCE(page_folio(place->page)->mapping) == mapping)
			continue;
		crtos_channel_recall(realm->channel, i);
		any = true;
	}
	if (any)
		ask_recall(realm);
}

/*
 * Says that places of a watch have lost what the file lost before it watched. Whoever is about to
 * cut the file may have told of that before: then all of them have.
 */
static void recall_lost(const struct crtos_watch *watch)
{
	struct crtos_realm *realm = watch->realm;
	struct rw_semaphore *cutting = &watch->mapping->host->i_rwsem;
	pgoff_t last = watch->first + (watch->length >> PAGE_SHIFT) - 1;
	bool nobody_cuts = down_read_trylock(cutting);

	spin_lock(&realm->places_lock);
	recall(realm, watch->mapping, watch->first, last, nobody_cuts);
	spin_unlock(&realm->places_lock);
	if (nobody_cuts)
		up_read(cutting);
}

/*
 * What the shadow itself unmaps stays in the file, and so does what changes its rights. This
 * never waits.
 */
static bool invalidate(struct mmu_interval_notifier *notifier,
		       const struct mmu_notifier_range *range, unsigned long sequence)
{
	struct crtos_watch *watch = container_of(notifier, struct crtos_watch, notifier);
	u64 start = max_t(u64, range->start, watch->start) - watch->start;
	u64 end = min_t(u64, range->end, watch->start + watch->length) - watch->start;

	spin_lock(&watch->realm->places_lock);
	mmu_interval_set_seq(notifier, sequence);
	if (range->event == MMU_NOTIFY_CLEAR && start < end)
		recall(watch->realm, watch->mapping, watch->first + (start >> PAGE_SHIFT),
		       watch->first + ((end - 1) >> PAGE_SHIFT), false);
	spin_unlock(&watch->realm->places_lock);
	return true;
}

static const struct mmu_interval_notifier_ops watch_ops = {
	.invalidate = invalidate,
};

/* Watches so many bytes of the calling shadow, which show the mapping from that page on. */
static struct crtos_watch *make_watch(struct crtos_realm *realm, struct address_space *mapping,
				      u64 start, u64 length, pgoff_t first)
{
	struct crtos_watch *watch = kzalloc(sizeof(*watch), GFP_KERNEL);
	int error;

	if (!watch)
		return ERR_PTR(-ENOMEM);
	kref_init(&watch->ref);
	watch->realm = realm;
	watch->mapping = mapping;
	watch->start = start;
	watch->length = length;
	watch->first = first;
	error = mmu_interval_notifier_insert(&watch->notifier, current->mm, start, length,
					     &watch_ops);
	if (error) {
		kfree(watch);
		return ERR_PTR(error);
	}
	recall_lost(watch);
	return watch;
}

/**
 * crtos_watch_begin() - watch a mirror of the calling shadow
 * @realm: the realm
 * @file: its file
 * @start: where it begins
 * @length: its bytes
 * @first: the page of the file that it begins with
 *
 * Context: May sleep; takes mmap_lock.
 * Return: the watch, or an error.
 */
struct crtos_watch *crtos_watch_begin(struct crtos_realm *realm, const struct file *file,
				      u64 start, u64 length, pgoff_t first)
{
	return make_watch(realm, file->f_mapping, start, length, first);
}

/**
 * crtos_watch_copy() - watch in the calling shadow what its parent's watch does
 * @watch: that of the parent, which forked the caller
 *
 * Context: May sleep; takes mmap_lock.
 * Return: the watch, or an error.
 */
struct crtos_watch *crtos_watch_copy(const struct crtos_watch *watch)
{
	return make_watch(watch->realm, watch->mapping, watch->start, watch->length,
			  watch->first);
}

/**
 * crtos_watch_get() - take a reference to a watch
 * @watch: the watch
 */
void crtos_watch_get(struct crtos_watch *watch)
{
	kref_get(&watch->ref);
}

static void end_watch(struct kref *ref)
{
	struct crtos_watch *watch = container_of(ref, struct crtos_watch, ref);

	mmu_interval_notifier_remove(&watch->notifier);
	kfree(watch);
}

/**
 * crtos_watch_put() - give a reference to a watch back; the last one ends it
 * @watch: the watch, or NULL
 *
 * Context: May sleep; not with mmap_lock.
 */
void crtos_watch_put(struct crtos_watch *watch)
{
	if (watch)
		kref_put(&watch->ref, end_watch);
}

/* Takes the page from a place that no CPU of the realm reaches. */
static void release_place(struct crtos_realm *realm, u32 number)
{
	struct crtos_place *place = &realm->places[number];
	struct page *page;
	bool writes;

	spin_lock(&realm->places_lock);
	page = place->page;
	writes = place->writes;
	place->page = NULL;
	crtos_channel_forget_recall(realm->channel, number);
	spin_unlock(&realm->places_lock);
	if (page)
		unpin_user_pages_dirty_lock(&page, 1, writes);
}

static s64 is_held(struct crtos_realm *realm, u32 number)
{
	return crtos_hypercall(CRTOS_HC_PLACE_HELD, realm->cell->number, number, 0, 0);
}

/*
 * Takes the pages from all places that the kernel has given up. Those of which the hypervisor
 * does not say so yet stay for later. The caller holds places_mutex.
 */
static void settle(struct crtos_realm *realm)
{
	u32 word, number;
	u64 bits;

	if (!READ_ONCE(realm->alive))
		return;
	WRITE_ONCE(realm->given_up_seen, READ_ONCE(realm->channel->given_up_count));
	/*
	 * Before the look at the bits: what is counted later is looked at again. Pairs with
	 * give_up() of lib/channel, which counts after it has set bits.
	 */
	smp_mb();
	for (word = 0; word * 64 < realm->places_end; word++) {
		for (bits = crtos_channel_given_up(realm->channel, word); bits; bits &= bits - 1) {
			number = word * 64 + __ffs64(bits);
			if (!realm->places[number].page)
				continue;
			switch (is_held(realm, number)) {
			case 0:
				release_place(realm, number);
				break;
			case CRTOS_HV_BUSY:
				crtos_channel_or64(&realm->channel->given_up[word],
						   BIT_ULL(number % 64));
				queue_delayed_work(crtos.work, &realm->settle, 1);
			}
		}
		cond_resched();
	}
}

static void settle_work(struct work_struct *work)
{
	struct crtos_realm *realm = container_of(to_delayed_work(work), struct crtos_realm, settle);

	mutex_lock(&realm->places_mutex);
	settle(realm);
	mutex_unlock(&realm->places_mutex);
}

static void recall_work(struct work_struct *work)
{
	struct crtos_realm *realm = container_of(work, struct crtos_realm, recall);

	if (READ_ONCE(realm->alive))
		crtos_hypercall(CRTOS_HC_DOORBELL, realm->cell->number, 0, 0, 0);
}

/**
 * crtos_places_doorbell() - has the kernel given places up?
 * @realm: the realm
 *
 * Context: Any, hard interrupts on PREEMPT_RT included.
 */
void crtos_places_doorbell(struct crtos_realm *realm)
{
	if (READ_ONCE(realm->channel->given_up_count) != READ_ONCE(realm->given_up_seen))
		mod_delayed_work(crtos.work, &realm->settle, 0);
}

/* Has the hypervisor put a page at a place. */
static s64 put_at_place(struct crtos_realm *realm, u32 number, struct page *page, bool write)
{
	struct crtos_region *region = realm->region;
	s64 result;
	int tries;

	region->cell_address = CRTOS_SHARE_WINDOW + (u64)number * PAGE_SIZE;
	region->physical = page_to_phys(page);
	region->size = PAGE_SIZE;
	/* Which programs may execute it, the kernel decides: a fault here would stop the realm. */
	region->flags = CRTOS_REGION_EXECUTE | (write ? CRTOS_REGION_WRITE : 0);
	for (tries = 0; tries < TRIES; tries++) {
		result = crtos_hypercall(CRTOS_HC_CELL_MAP, realm->cell->number,
					 __pa(region), 0, 0);
		if (result != CRTOS_HV_BUSY || !READ_ONCE(realm->alive))
			break;
		usleep_range(50, 100);
	}
	if (!result)
		return 0;
	return result == CRTOS_HV_NO_MEMORY ? -ENOMEM : result == CRTOS_HV_BUSY ? -EAGAIN : -EPERM;
}

/* Notes a page at a place, and has it put there. The caller holds places_mutex. */
static s64 fill_place(struct crtos_watch *watch, u32 number, struct page *page, pgoff_t index,
		      bool write)
{
	struct crtos_realm *realm = watch->realm;
	struct crtos_place *place = &realm->places[number];
	s64 result;
	int tries;

	/* The kernel has just given it up: CPUs of the realm may be about to forget it. */
	for (tries = 0; place->page; tries++) {
		if (tries == TRIES)
			return -EBUSY;
		if (tries)
			usleep_range(50, 100);
		settle(realm);
	}
	spin_lock(&realm->places_lock);
	place->page = page;
	place->mapping = watch->mapping;
	place->index = index;
	place->writes = write;
	realm->places_end = max(realm->places_end, number + 1);
	crtos_channel_forget_recall(realm->channel, number);
	spin_unlock(&realm->places_lock);
	result = put_at_place(realm, number, page, write);
	if (result) {
		spin_lock(&realm->places_lock);
		place->page = NULL;
		spin_unlock(&realm->places_lock);
	}
	return result;
}

/* How many pages of the file there are already from the second one on, beside the first one. */
static u32 count_present(const struct crtos_watch *watch, struct file *file, pgoff_t index,
			 u32 count)
{
	u32 there;

	for (there = 1; there < count; there++) {
		struct page *page = pagecache_get_page(file->f_mapping, index + there, 0, 0);

		if (!page)
			break;
		put_page(page);
	}
	return there;
}

/*
 * Pins pages of a mirror. The shadow, over which its user has power, may have mapped something
 * else there: the pages count up to the first one that is none of the file's.
 */
static s64 pin_pages(const struct crtos_watch *watch, u64 first, u32 count, bool write,
		     struct page **pages)
{
	unsigned int flags = FOLL_LONGTERM | (write ? FOLL_WRITE : 0);
	int pinned = pin_user_pages_fast(watch->start + first * PAGE_SIZE, count, flags, pages);
	int i;

	for (i = 0; i < pinned; i++) {
		struct folio *folio = page_folio(pages[i]);

		if (READ_ONCE(folio->mapping) != watch->mapping ||
		    folio->index + folio_page_idx(folio, pages[i]) != watch->first + first + i)
			break;
	}
	if (i >= pinned)
		return pinned;
	unpin_user_pages(pages + i, pinned - i);
	return i ?: -EFAULT;
}

/* The places that the kernel names. */
static bool read_places(struct crtos_realm *realm, u64 list, u32 *places, u32 count)
{
	u64 size = realm->cell->pool.count * CRTOS_LARGE_PAGE_SIZE, offset;
	const u64 *words;
	u32 i;

	if (!crtos_channel_pool_page(list, size, &offset))
		return false;
	words = page_address(crtos_pool_page(realm, offset));
	for (i = 0; i < count; i++)
		if (!crtos_channel_place(READ_ONCE(words[i]), &places[i]))
			return false;
	return true;
}

/**
 * crtos_share() - CRTOS_OP_SHARE: put pages of a mirror at places of the share window
 * @watch: the mirror's
 * @file: its file
 * @request: what the kernel asks for
 *
 * Context: The calling task is a shadow thread. May sleep.
 * Return: how many pages, or an error if there is none.
 */
s64 crtos_share(struct crtos_watch *watch, struct file *file, const struct crtos_request *request)
{
	struct crtos_realm *realm = watch->realm;
	bool write = request->args[3] & CRTOS_SHARE_WRITE, all = request->args[3] & CRTOS_SHARE_ALL;
	struct page *pages[CRTOS_MOST_SHARED_PAGES];
	u32 places[CRTOS_MOST_SHARED_PAGES];
	u32 count = request->args[3];
	u64 first = request->args[1];
	unsigned long sequence;
	s64 result = 0, pinned;
	u32 done = 0, i;

	if (!count || count > CRTOS_MOST_SHARED_PAGES || first >= watch->length >> PAGE_SHIFT)
		return -EINVAL;
	count = min_t(u64, count, (watch->length >> PAGE_SHIFT) - first);
	if (!read_places(realm, request->args[2], places, count))
		return -EINVAL;
	if (!all)
		count = count_present(watch, file, watch->first + first, count);
	sequence = mmu_interval_read_begin(&watch->notifier);
	pinned = pin_pages(watch, first, count, write, pages);
	if (pinned <= 0)
		return pinned ?: -EFAULT;
	mutex_lock(&realm->places_mutex);
	for (; done < pinned && !result; done += !result)
		result = fill_place(watch, places[done], pages[done], watch->first + first + done,
				    write);
	mutex_unlock(&realm->places_mutex);
	unpin_user_pages(pages + done, pinned - done);
	if (mmu_interval_read_retry(&watch->notifier, sequence)) {
		spin_lock(&realm->places_lock);
		for (i = 0; i < done; i++)
			crtos_channel_recall(realm->channel, places[i]);
		ask_recall(realm);
		spin_unlock(&realm->places_lock);
	}
	return done ?: result;
}

/**
 * crtos_place_page() - the page at a place
 * @realm: the realm
 * @number: number of the place
 *
 * Context: Any in which the realm stays.
 * Return: the page with a reference, or NULL.
 */
struct page *crtos_place_page(struct crtos_realm *realm, u32 number)
{
	struct page *page;

	spin_lock(&realm->places_lock);
	page = realm->places[number].page;
	if (page)
		get_page(page);
	spin_unlock(&realm->places_lock);
	return page;
}

/**
 * crtos_places_init() - prepare a new realm, without pages
 * @realm: the realm
 *
 * Return: 0 or -ENOMEM.
 */
int crtos_places_init(struct crtos_realm *realm)
{
	realm->places = kvcalloc(CRTOS_PLACES, sizeof(*realm->places), GFP_KERNEL);
	realm->region = kzalloc(sizeof(*realm->region), GFP_KERNEL);
	if (!realm->places || !realm->region) {
		kvfree(realm->places);
		kfree(realm->region);
		return -ENOMEM;
	}
	mutex_init(&realm->places_mutex);
	spin_lock_init(&realm->places_lock);
	INIT_DELAYED_WORK(&realm->settle, settle_work);
	INIT_WORK(&realm->recall, recall_work);
	return 0;
}

/**
 * crtos_places_release() - take all pages of a realm that reaches none of them any more
 * @realm: the realm, whose cell has no memory
 *
 * Context: May sleep.
 */
void crtos_places_release(struct crtos_realm *realm)
{
	u32 i;

	mutex_lock(&realm->places_mutex);
	for (i = 0; i < realm->places_end; i++)
		release_place(realm, i);
	realm->places_end = 0;
	realm->given_up_seen = 0;
	mutex_unlock(&realm->places_mutex);
}

/**
 * crtos_places_free() - free what crtos_places_init() made, and take all pages
 * @realm: the realm, whose cell is gone
 *
 * Context: May sleep.
 */
void crtos_places_free(struct crtos_realm *realm)
{
	cancel_delayed_work_sync(&realm->settle);
	cancel_work_sync(&realm->recall);
	crtos_places_release(realm);
	kvfree(realm->places);
	kfree(realm->region);
}
