// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory changes hands in blocks of 2 MiB, taken from the page allocator
 * wherever they lie; nested page tables make them contiguous for a cell.
 *
 * Where two neighbours can be had at once they are taken and given back in one
 * piece: Linux keeps what is freed in smaller pieces, up to single blocks, in
 * lists of each CPU, where it is not free for others.
 */
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "crtos.h"

#define BLOCK_ORDER	(ilog2(CRTOS_LARGE_PAGE_SIZE) - PAGE_SHIFT)
#define BLOCK_PAGES	BIT(BLOCK_ORDER)
#define PAIR_ORDER	(BLOCK_ORDER + 1)

#define GFP_BLOCK	(GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN)

/* Two neighbours with a reference count each, or NULL. */
static struct page *take_pair(void)
{
	struct page *page = alloc_pages(GFP_BLOCK | __GFP_NORETRY, PAIR_ORDER);

	if (page)
		init_page_count(page + BLOCK_PAGES);
	return page;
}

static bool is_pair(struct page *first, struct page *second)
{
	return first + BLOCK_PAGES == second &&
	       IS_ALIGNED(page_to_pfn(first), BIT(PAIR_ORDER));
}

/**
 * crtos_blocks_take() - take memory from Linux
 * @blocks: what could be had
 * @bytes: how much, a multiple of 2 MiB; it is zeroed
 *
 * Context: Sleeps; may compact memory.
 * Return: 0, -ENOMEM or -EINTR (fatal signal). In all cases the caller gives
 * @blocks back.
 */
int crtos_blocks_take(struct crtos_blocks *blocks, u64 bytes)
{
	u64 wanted = bytes / CRTOS_LARGE_PAGE_SIZE;

	blocks->count = 0;
	blocks->page = kvcalloc(wanted, sizeof(*blocks->page), GFP_KERNEL);
	if (!blocks->page)
		return -ENOMEM;
	while (blocks->count < wanted) {
		struct page *page;

		if (fatal_signal_pending(current))
			return -EINTR;
		page = wanted - blocks->count > 1 ? take_pair() : NULL;
		if (page) {
			blocks->page[blocks->count++] = page;
			page += BLOCK_PAGES;
		} else {
			page = alloc_pages(GFP_BLOCK | __GFP_RETRY_MAYFAIL, BLOCK_ORDER);
		}
		if (!page)
			return -ENOMEM;
		blocks->page[blocks->count++] = page;
		cond_resched();
	}
	return 0;
}

/**
 * crtos_blocks_return() - give blocks back to the page allocator
 * @blocks: the blocks, which nobody uses
 *
 * Context: May sleep.
 */
void crtos_blocks_return(struct crtos_blocks *blocks)
{
	while (blocks->count) {
		struct page *page = blocks->page[--blocks->count];
		unsigned int order = BLOCK_ORDER;

		if (blocks->count && is_pair(blocks->page[blocks->count - 1], page) &&
		    page_ref_freeze(page, 1)) {
			page = blocks->page[--blocks->count];
			order = PAIR_ORDER;
		}
		__free_pages(page, order);
		cond_resched();
	}
	kvfree(blocks->page);
	blocks->page = NULL;
}

/**
 * crtos_blocks_hide() - mark blocks that the hypervisor hides from Linux
 * @blocks: the blocks
 *
 * Those who walk all memory (/proc/kcore, dump tools) leave them out.
 */
void crtos_blocks_hide(struct crtos_blocks *blocks)
{
	u64 block;
	unsigned int i;

	for (block = 0; block < blocks->count; block++)
		for (i = 0; i < BLOCK_PAGES; i++)
			__SetPageOffline(blocks->page[block] + i);
}

/**
 * crtos_blocks_show() - undo crtos_blocks_hide()
 * @blocks: the blocks
 */
void crtos_blocks_show(struct crtos_blocks *blocks)
{
	u64 block;
	unsigned int i;

	for (block = 0; block < blocks->count; block++)
		for (i = 0; i < BLOCK_PAGES; i++)
			__ClearPageOffline(blocks->page[block] + i);
}

/**
 * crtos_blocks_share() - split blocks into pages
 * @blocks: the blocks
 *
 * Each page has a reference count then, as mappings and get_user_pages() need it.
 */
void crtos_blocks_share(struct crtos_blocks *blocks)
{
	u64 block;

	for (block = 0; block < blocks->count; block++)
		split_page(blocks->page[block], BLOCK_ORDER);
}

/* Makes one block of split pages again, unless somebody else holds one of them. */
static bool join_block(struct page *page)
{
	unsigned int i;

	for (i = 1; i < BLOCK_PAGES; i++) {
		if (page_ref_freeze(page + i, 1))
			continue;
		while (--i)
			page_ref_unfreeze(page + i, 1);
		return false;
	}
	return true;
}

/**
 * crtos_blocks_return_shared() - give back blocks that were split
 * @blocks: the blocks; a page that is still pinned follows when it is unpinned
 *
 * Context: May sleep.
 */
void crtos_blocks_return_shared(struct crtos_blocks *blocks)
{
	u64 block, whole = 0;
	unsigned int i;

	for (block = 0; block < blocks->count; block++) {
		struct page *page = blocks->page[block];

		if (join_block(page)) {
			blocks->page[whole++] = page;
			continue;
		}
		for (i = 0; i < BLOCK_PAGES; i++)
			__free_page(page + i);
		cond_resched();
	}
	blocks->count = whole;
	crtos_blocks_return(blocks);
}
