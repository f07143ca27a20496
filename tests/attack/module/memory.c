// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that Linux does not have, or has no more.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/preempt.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "hypercall.h"
#include "memory.h"

/* A block of memory that changes owner. */
#define BLOCK_ORDER	9
#define BLOCK_BYTES	(PAGE_SIZE << BLOCK_ORDER)
/* End of the memory in which hidden pages are looked for. */
#define MEMORY_END	BIT_ULL(36)
/* Between two looks whether another thread wants the CPU. */
#define STRETCH		256

/* The first hidden page from that one on, or one behind the end of the memory. */
static unsigned long next_hidden(unsigned long frame)
{
	for (; frame < PHYS_PFN(MEMORY_END); frame++) {
		if (!pfn_valid(frame))
			frame |= PAGES_PER_SECTION - 1;
		else if (PageOffline(pfn_to_page(frame)))
			break;
	}
	return frame;
}

int attack_hidden(char *result, size_t size)
{
	unsigned long frame, hidden = 0, seen = 0;
	u64 word;

	for (frame = next_hidden(0); frame < PHYS_PFN(MEMORY_END); frame = next_hidden(frame + 1)) {
		hidden++;
		seen += !copy_from_kernel_nofault(&word, __va(PFN_PHYS(frame)), sizeof(word));
		if (hidden % STRETCH == 0)
			cond_resched();
	}
	return snprintf(result, size, "%lu %lu\n", hidden, seen);
}

/* Written by the one that gives the page away, but for the counts. */
static struct {
	u64 *place;
	bool has_contents;
	bool over;
	unsigned int before, since;
	struct completion done;
} stale;

/* Nothing else runs there meanwhile, so that the CPU keeps what it knows of the page. */
static int read_on(void *unused)
{
	u64 word;

	preempt_disable();
	while (!READ_ONCE(stale.over)) {
		bool is_late = READ_ONCE(stale.has_contents);

		if (copy_from_kernel_nofault(&word, stale.place, sizeof(word)))
			continue;
		if (is_late)
			stale.since++;
		else
			WRITE_ONCE(stale.before, stale.before + 1);
	}
	preempt_enable();
	complete(&stale.done);
	return 0;
}

/*
 * Gives the block to a cell while others read it, and has it filled. Without a source the cell
 * starts with the block as it is, and fails.
 */
static s64 give(u64 cell, struct crtos_region *region, u64 source)
{
	s64 error = crtos_hypercall(CRTOS_HC_CELL_MAP, cell, virt_to_phys(region), 0, 0);

	if (!error && source)
		error = crtos_hypercall(CRTOS_HC_CELL_LOAD, cell, 0, source, PAGE_SIZE);
	else if (!error)
		error = crtos_hypercall(CRTOS_HC_CELL_START, cell, 0, 0, 0);
	if (!error) {
		WRITE_ONCE(stale.has_contents, true);
		mdelay(20);
	}
	WRITE_ONCE(stale.over, true);
	wait_for_completion(&stale.done);
	crtos_hypercall(CRTOS_HC_CELL_STOP, cell, 0, 0, 0);
	/* A piece at a time. */
	while (crtos_hypercall(CRTOS_HC_CELL_RECLAIM, cell, 0, 0, 0) == 1)
		;
	return error;
}

static s64 make_stale(unsigned int reader, struct crtos_cell_config *config,
		      struct crtos_region *region, u64 source)
{
	struct task_struct *thread;
	s64 cell, error;

	cell = crtos_hypercall(CRTOS_HC_CELL_CREATE, virt_to_phys(config), 0, 0, 0);
	if (cell < 0)
		return -EINVAL;
	thread = kthread_run_on_cpu(read_on, NULL, reader, "stale/%u");
	error = PTR_ERR_OR_ZERO(thread);
	if (!error) {
		while (READ_ONCE(stale.before) < 1000)
			usleep_range(100, 200);
		error = give(cell, region, source) ? -EIO : 0;
	}
	if (crtos_hypercall(CRTOS_HC_CELL_DESTROY, cell, 0, 0, 0))
		error = -EBUSY;
	return error;
}

/* A cell with one CPU, and a block that is to be its own. */
static void describe(struct crtos_cell_config *config, struct crtos_region *region,
		     const char *name, unsigned int owner, u64 physical)
{
	strscpy(config->name, name, sizeof(config->name));
	config->doorbell_vector = 0x50;
	config->link_vector = 0x50;
	config->cpu_count = 1;
	config->cpus[0] = owner;
	region->cell_address = 0;
	region->physical = physical;
	region->size = BLOCK_BYTES;
	region->flags = CRTOS_REGION_PRIVATE | CRTOS_REGION_WRITE;
}

int attack_stale(bool start, unsigned int reader, unsigned int owner, char *result, size_t size)
{
	struct crtos_cell_config *config = (void *)get_zeroed_page(GFP_KERNEL);
	struct crtos_region *region = (void *)get_zeroed_page(GFP_KERNEL);
	struct page *block = alloc_pages(GFP_KERNEL, BLOCK_ORDER);
	int error = -ENOMEM;

	if (config && region && block) {
		describe(config, region, "stale", owner, page_to_phys(block));
		memset(&stale, 0, sizeof(stale));
		stale.place = page_address(block);
		init_completion(&stale.done);
		error = make_stale(reader, config, region, start ? 0 : virt_to_phys(config));
	}
	/* A cell that did not go keeps it. */
	if (block && error != -EBUSY)
		__free_pages(block, BLOCK_ORDER);
	free_page((unsigned long)config);
	free_page((unsigned long)region);
	return error ?: snprintf(result, size, "%u %u\n", stale.before, stale.since);
}

/* Has a cell get a page at an address, by which it is shared. */
static s64 share(u64 cell, struct crtos_region *region, u64 address, u64 physical)
{
	region->cell_address = address;
	region->physical = physical;
	region->size = PAGE_SIZE;
	region->flags = CRTOS_REGION_WRITE;
	return crtos_hypercall(CRTOS_HC_CELL_MAP, cell, virt_to_phys(region), 0, 0);
}

/* How many pages that are not Linux's memory the cell gets at an address. */
static unsigned long share_foreign(u64 cell, struct crtos_region *region, u64 address,
				   unsigned long *tried)
{
	static const u64 controllers[] = { 0xfec00000, 0xfed90000, 0xfee00000 };
	unsigned long frame, got = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(controllers); i++)
		got += !share(cell, region, address, controllers[i]);
	for (frame = next_hidden(0); frame < PHYS_PFN(MEMORY_END); frame = next_hidden(frame + 1)) {
		got += !share(cell, region, address, PFN_PHYS(frame));
		if (++*tried % STRETCH == 0)
			cond_resched();
	}
	return got;
}

/* Whether another cell gets the block as its own. */
static s64 make_private(struct crtos_cell_config *config, struct crtos_region *region,
			u64 physical, unsigned int owner)
{
	s64 cell, result;

	describe(config, region, "private", owner, physical);
	cell = crtos_hypercall(CRTOS_HC_CELL_CREATE, virt_to_phys(config), 0, 0, 0);
	if (cell < 0)
		return cell;
	result = crtos_hypercall(CRTOS_HC_CELL_MAP, cell, virt_to_phys(region), 0, 0);
	while (crtos_hypercall(CRTOS_HC_CELL_RECLAIM, cell, 0, 0, 0) == 1)
		;
	crtos_hypercall(CRTOS_HC_CELL_DESTROY, cell, 0, 0, 0);
	return result;
}

/*
 * At the last place of a window, which the realm's kernel uses last. The cell has the block
 * from then on, so it is never freed.
 */
int attack_share(u64 cell, unsigned int owner, char *result, size_t size)
{
	u64 place = CRTOS_SHARE_WINDOW_END - PAGE_SIZE, number = CRTOS_PLACES - 1;
	struct crtos_cell_config *config = (void *)get_zeroed_page(GFP_KERNEL);
	struct crtos_region *region = (void *)get_zeroed_page(GFP_KERNEL);
	struct page *block = alloc_pages(GFP_KERNEL, BLOCK_ORDER);
	unsigned long tried = 0, got;
	int length = -ENOMEM;
	s64 first, again, elsewhere, whole, held, taken, private;
	u64 page;

	if (!config || !region || !block)
		goto out;
	page = page_to_phys(block);
	got = share_foreign(cell, region, place, &tried);
	elsewhere = share(cell, region, CRTOS_SHARE_WINDOW - PAGE_SIZE, page);
	region->size = BLOCK_BYTES;
	region->cell_address = CRTOS_SHARE_WINDOW_END - BLOCK_BYTES;
	whole = crtos_hypercall(CRTOS_HC_CELL_MAP, cell, virt_to_phys(region), 0, 0);
	first = share(cell, region, place, page);
	again = share(cell, region, place, page + PAGE_SIZE);
	held = crtos_hypercall(CRTOS_HC_PLACE_HELD, cell, number, 0, 0);
	taken = crtos_hypercall(CRTOS_HC_PLACES_LEAVE, number / 64, ~0ull, 0, 0);
	private = make_private(config, region, page, owner);
	length = snprintf(result, size,
			  "%lu %lu elsewhere %lld block %lld first %lld again %lld held %lld taken %lld private %lld held %lld\n",
			  tried, got, elsewhere, whole, first, again, held, taken, private,
			  crtos_hypercall(CRTOS_HC_PLACE_HELD, cell, number, 0, 0));
out:
	free_page((unsigned long)config);
	free_page((unsigned long)region);
	return length;
}
