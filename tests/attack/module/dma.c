// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attacks by DMA of the device edu, whose tables in an IOMMU are Linux's: in one of Intel's kind
 * those of legacy mode, or of scalable mode with tables of the first or of the second stage, in one
 * of AMD's kind those of the host. Nothing of what Linux has there is lost: new pages are linked
 * beside it, and each store is undone afterwards.
 */
#include <linux/bitfield.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/prandom.h>
#include <linux/uaccess.h>
#include <asm/asm.h>
#include <asm/cacheflush.h>

#include "amd.h"
#include "dma.h"
#include "iommu.h"

static unsigned int edu_number;
module_param_named(edu, edu_number, uint, 0444);
MODULE_PARM_DESC(edu, "which device of that kind attacks, the first one being 0");

/* Registers of edu, and its memory. */
#define EDU_SOURCE	0x80
#define EDU_TARGET	0x88
#define EDU_COUNT	0x90
#define EDU_COMMAND	0x98
#define EDU_START	BIT(0)
#define EDU_TO_MEMORY	BIT(1)
#define EDU_MEMORY	0x40000
#define EDU_WORDS	512
/* The word that holds what was said before, and the first of the others. */
#define EDU_HELD	0
#define EDU_FRESH	1
/* How long it may take, in microseconds: it waits for a tenth of a second itself. */
#define EDU_PATIENCE	10000000

/* Registers of the unit. */
#define UNIT_COMMAND	0x18
#define UNIT_STATUS	0x1c
#define UNIT_ROOT	0x20
#define TRANSLATES	BIT(31)
#define SET_ROOT	BIT(30)
/* States, which a command repeats. */
#define STATES		0x86800000
#define ROOT_MODE	GENMASK(11, 10)
/* How long a command may take, in microseconds. */
#define UNIT_PATIENCE	100000

/* Commands: forget all devices; all processes; all translations, and drain. */
#define FORGET_DEVICES	(1 | BIT(4))
#define FORGET_PROCESSES	(7 | BIT(4) | BIT(5))
#define FORGET_PAGES	(2 | BIT(4) | BIT(6) | BIT(7))

/* Entries. */
#define ADDRESS		GENMASK_ULL(51, 12)
#define PRESENT		BIT(0)
#define RIGHTS		(BIT(0) | BIT(1))
#define LARGE		BIT(7)
#define PASS_THROUGH	(2 << 2)
#define WIDTH		GENMASK(2, 0)
#define DOMAIN		GENMASK(23, 8)
#define ENTRIES		512
/* Three levels are the first width. */
#define LEVELS(width)	((width) + 2)

/*
 * In scalable mode: words of a device's entry and of a process's, and in the former's second one
 * the process of requests that name none. A directory has an entry for so many processes.
 */
#define DEVICE_WORDS	4
#define PROCESS_WORDS	8
#define PROCESS		GENMASK(19, 0)
#define PROCESSES	64
/* Of a process's entry: the kind of its tables, their width, domain, the first stage's levels. */
#define PROCESS_KIND	GENMASK(8, 6)
#define KIND_FIRST	1
#define KIND_SECOND	2
#define KIND_NESTED	3
#define KIND_PASS	4
#define PROCESS_WIDTH	GENMASK(4, 2)
#define PROCESS_DOMAIN	GENMASK(15, 0)
#define FIRST_LEVELS	GENMASK(3, 2)
#define TOP_OF_FIRST	2

/* Entries of the first stage, as those of the processor: for users, accessed and dirty. */
#define FIRST_RIGHTS	(RIGHTS | BIT(2))
#define FIRST_USED	(BIT(5) | BIT(6))

/* What is read if nothing arrives in the device; other devices and units leave 0 there. */
#define NOTHING		0x6e6f7468696e6721
/* What stands in its page until it writes there. */
#define UNREAD		0x756e726561642121

/* The same of AMD's kind; the first word of a device's entry is much like one of a table. */
#define AMD_RIGHTS	(BIT_ULL(62) | BIT_ULL(61))
#define AMD_LEVEL	GENMASK_ULL(11, 9)
#define AMD_TO_LEVEL(level)	((u64)(level) << 9)
#define AMD_SIZED	AMD_TO_LEVEL(7)
#define AMD_TRANSLATES	BIT_ULL(1)
#define AMD_NESTED	BIT_ULL(55)
#define AMD_DOMAIN	GENMASK_ULL(15, 0)

#define MOST_CHANGES	512
#define MOST_PAGES	1024
#define RACES		40

/*
 * The device, and a page that Linux has it use. Words of its memory from @fresh on hold NOTHING:
 * each transfer has a word of its own, since it takes long to fill them.
 */
static struct {
	struct pci_dev *pci;
	void __iomem *registers;
	u64 *page;
	dma_addr_t bus;
	unsigned int fresh;
	u64 held;
} edu;

/* What was forged since the last undo(). */
static struct {
	struct {
		u64 *place;
		u64 old;
	} change[MOST_CHANGES];
	unsigned int changes;
	void *page[MOST_PAGES];
	unsigned int pages;
	u64 root;		/* Linux's, if it was replaced */
	bool off;		/* no addresses are translated */
	bool same;		/* the device's addresses are the machine's */
	u64 below;		/* or end there, if this is not 0 */
} forged;

/* The unit's registers; NULL if it is of AMD's kind. */
static void __iomem *unit;

/* Tables of the first stage translate for the device. */
static bool first_stage;

/* The entry that names the tables of memory, or what it is to be. */
struct context {
	u64 word[PROCESS_WORDS];
};

static bool is_scalable(void)
{
	return unit && readq(unit + UNIT_ROOT) & ROOT_MODE;
}

static u64 *new_page(void)
{
	void *page = forged.pages < MOST_PAGES ? (void *)get_zeroed_page(GFP_KERNEL) : NULL;

	if (page)
		forged.page[forged.pages++] = page;
	return page;
}

static u64 *copy_page_of(const u64 *page)
{
	u64 *copy = new_page();

	if (copy)
		memcpy(copy, page, PAGE_SIZE);
	return copy;
}

/* Has an instruction change what stands at @place, where @old stood; -EFAULT if it faults. */
#define TRY(instruction) ({						\
	int error = -EFAULT;						\
									\
	asm volatile("1: " instruction "\n"				\
		     "xorl %0, %0\n"					\
		     "2:\n" _ASM_EXTABLE(1b, 2b)			\
		     : "+r" (error), "+m" (*(u64 *)place), "+a" (old)	\
		     : "r" (value) : "cc", "memory");			\
	error;								\
})

static int store_bytes(void *start, u64 all)
{
	u64 old = 0;
	int i, error = 0;

	/* The one with the rights comes last. */
	for (i = 7; i >= 0 && !error; i--) {
		void *place = start + i;
		u64 value = all >> 8 * i;

		error = TRY("movb %b3, %1");
	}
	return error;
}

static int store_halves(void *start, u64 all)
{
	u64 old = 0;
	int i, error = 0;

	for (i = 1; i >= 0 && !error; i--) {
		void *place = start + 4 * i;
		u64 value = all >> 32 * i;

		error = TRY("movl %k3, %1");
	}
	return error;
}

static int store_string(u64 *place, u64 value)
{
	int error = -EFAULT;
	u64 count = 1;

	asm volatile("1: rep stosq\n"
		     "xorl %0, %0\n"
		     "2:\n" _ASM_EXTABLE(1b, 2b)
		     : "+r" (error), "+D" (place), "+c" (count)
		     : "a" (value)
		     : "memory");
	return error;
}

static int store_by(const char *kind, u64 *place, u64 value)
{
	u64 old = READ_ONCE(*place);

	if (!strcmp(kind, "bytes"))
		return store_bytes(place, value);
	if (!strcmp(kind, "halves"))
		return store_halves(place, value);
	if (!strcmp(kind, "string"))
		return store_string(place, value);
	/* As Linux does it for pages, and for tables. */
	if (!strcmp(kind, "cmpxchg"))
		return TRY("cmpxchgq %3, %1");
	if (!strcmp(kind, "locked"))
		return TRY("lock cmpxchgq %3, %1");
	if (!strcmp(kind, "xchg"))
		return TRY("xchgq %3, %1");
	if (!strcmp(kind, "movnti"))
		return TRY("movntiq %3, %1");
	if (!strcmp(kind, "add")) {
		value -= old;
		return TRY("lock addq %3, %1");
	}
	if (!strcmp(kind, "or"))
		return TRY("orq %3, %1");
	return TRY("movq %3, %1");
}

/* Changes an entry, to be undone. */
static int change(const char *kind, u64 *place, u64 value)
{
	int error;

	if (forged.changes == MOST_CHANGES)
		return -ENOSPC;
	forged.change[forged.changes].place = place;
	forged.change[forged.changes++].old = READ_ONCE(*place);
	error = store_by(kind, place, value);
	clflush_cache_range(place, sizeof(*place));
	return error;
}

/* Has the unit change a state, or set its root table. */
static int command(u32 bit, bool on)
{
	u32 states = readl(unit + UNIT_STATUS) & STATES, status;

	writel(on ? states | bit : states & ~bit, unit + UNIT_COMMAND);
	return readl_poll_timeout(unit + UNIT_STATUS, status, !(status & bit) == !on, 10,
				  UNIT_PATIENCE);
}

static int set_root(u64 root)
{
	writeq(root, unit + UNIT_ROOT);
	return command(SET_ROOT, true);
}

static int forget(void)
{
	const u64 commands[] = { FORGET_DEVICES, FORGET_PAGES };
	const u64 scalable[] = { FORGET_DEVICES, FORGET_PROCESSES, FORGET_PAGES };

	if (!unit)
		return attack_amd_forget();
	if (is_scalable())
		return attack_command(scalable, ARRAY_SIZE(scalable));
	return attack_command(commands, ARRAY_SIZE(commands));
}

/* All entries are as before, which nobody tells the unit. */
static int revert(void)
{
	int error = 0;

	while (forged.changes) {
		u64 *place = forged.change[--forged.changes].place;
		int failed = store_by("mov", place, forged.change[forged.changes].old);

		clflush_cache_range(place, sizeof(*place));
		error = error ?: failed;
	}
	return error;
}

static int undo(void)
{
	int error = 0;

	if (!unit)
		error = attack_amd_restore_table();
	if (forged.off)
		error = command(TRANSLATES, true);
	if (forged.root)
		error = error ?: set_root(forged.root);
	error = error ?: revert();
	error = error ?: forget();
	/* What may be in use yet is not given back. */
	while (!error && forged.pages)
		free_page((unsigned long)forged.page[--forged.pages]);
	forged.pages = 0;
	forged.root = 0;
	forged.off = false;
	forged.same = false;
	forged.below = 0;
	return error;
}

/* The table that an entry names. */
static u64 *table_of(u64 entry)
{
	return __va(entry & ADDRESS);
}

static struct context context_of(const u64 *entry, unsigned int words)
{
	struct context context = { };

	memcpy(context.word, entry, words * sizeof(u64));
	return context;
}

/* In scalable mode each half of a bus has an entry. */
static u64 *find_root_entry(void)
{
	u64 *entry = table_of(readq(unit + UNIT_ROOT)) + 2 * edu.pci->bus->number;

	return is_scalable() ? entry + (edu.pci->devfn >> 7) : entry;
}

/* The entry of a function on the device's bus, or half of a bus. */
static u64 *find_function(unsigned int function)
{
	u64 *entry = find_root_entry();

	if (!(*entry & PRESENT))
		return NULL;
	return is_scalable() ? table_of(*entry) + DEVICE_WORDS * (function & 0x7f) :
			       table_of(*entry) + 2 * function;
}

/* Of scalable mode: the directory's entry for requests of a device that name no process. */
static u64 *directory_entry_of(const u64 *device)
{
	return table_of(device[0]) + (device[1] & PROCESS) / PROCESSES;
}

/* That process's entry, or NULL. */
static u64 *process_of(const u64 *device)
{
	u64 *entry = device[0] & PRESENT ? directory_entry_of(device) : NULL;

	if (!entry || !(*entry & PRESENT))
		return NULL;
	return table_of(*entry) + PROCESS_WORDS * ((device[1] & PROCESS) % PROCESSES);
}

/*
 * Finds the entry that names the device's tables of memory: two words, in scalable mode those of a
 * process, or those of AMD's kind.
 */
static u64 *find_context(void)
{
	u64 *entry;
	u16 device;

	if (!unit)
		return attack_amd_find_entry(&device);
	entry = find_function(edu.pci->devfn);
	if (!entry || !is_scalable())
		return entry;
	entry = process_of(entry);
	first_stage = entry && FIELD_GET(PROCESS_KIND, entry[0]) == KIND_FIRST;
	return entry;
}

static unsigned int context_words(void)
{
	return is_scalable() ? PROCESS_WORDS : 2;
}

/* The word of it that names the upper table. */
static u64 *top_word(u64 *context)
{
	return first_stage ? &context[TOP_OF_FIRST] : context;
}

static u64 *top_of(u64 *context)
{
	return table_of(*top_word(context));
}

static void set_top(u64 *context, const u64 *top)
{
	u64 *word = top_word(context);

	*word = (*word & ~ADDRESS) | __pa(top);
}

static unsigned int levels_of(const u64 *context)
{
	if (!unit)
		return FIELD_GET(AMD_LEVEL, *context);
	if (first_stage)
		return 4 + FIELD_GET(FIRST_LEVELS, context[TOP_OF_FIRST]);
	if (is_scalable())
		return LEVELS(FIELD_GET(PROCESS_WIDTH, context[0]));
	return LEVELS(context[1] & WIDTH);
}

/* Bits of an entry by which a device reads and writes. */
static u64 rights(void)
{
	return first_stage ? FIRST_RIGHTS : RIGHTS;
}

/* The same, and what else there is in all entries. */
static u64 full_rights(void)
{
	return first_stage ? FIRST_RIGHTS | FIRST_USED : RIGHTS;
}

static unsigned int shift_of(unsigned int level)
{
	return PAGE_SHIFT + 9 * (level - 1);
}

static u64 *entry_of(u64 *table, u64 address, unsigned int level)
{
	return table + (address >> shift_of(level)) % ENTRIES;
}

/* An entry that names a table of this level. */
static u64 link_to(const void *table, unsigned int level)
{
	return __pa(table) | (unit ? full_rights() : PRESENT | AMD_RIGHTS | AMD_TO_LEVEL(level));
}

/* An entry on this level that maps memory. */
static u64 leaf(u64 to, unsigned int level)
{
	to &= ADDRESS & -(1ull << shift_of(level));
	return unit ? to | full_rights() | (level > 1 ? LARGE : 0) : to | PRESENT | AMD_RIGHTS;
}

/* Follows tables down to a level; *LEVEL tells how far they go. Returns the entry there. */
static u64 *walk(u64 *table, unsigned int *level, unsigned int last, u64 address)
{
	u64 *entry = entry_of(table, address, *level);

	while (*level > last && *entry & (unit ? RIGHTS : PRESENT)) {
		--*level;
		entry = entry_of(table_of(*entry), address, *level);
	}
	return entry;
}

/* The same, with tables added one by one: each is linked before anything stands in it. */
static u64 *extend(u64 *table, unsigned int level, unsigned int last, u64 address,
		   const char *kind)
{
	u64 *entry = walk(table, &level, last, address);

	for (; level > last; level--) {
		u64 *next = new_page();

		if (!next || change(kind, entry, link_to(next, level - 1)))
			return NULL;
		entry = entry_of(next, address, level - 1);
	}
	return entry;
}

/*
 * Tables for what is missing are complete before the first one is linked by one store. *LINK is
 * what is to be stored; returns where, and in *LOWEST where the leaf is.
 */
static u64 *prepare(u64 *table, unsigned int level, u64 address, u64 to, u64 *link, u64 **lowest)
{
	u64 *entry = walk(table, &level, 1, address);
	unsigned int below;

	*link = leaf(to, 1);
	*lowest = entry;
	for (below = 1; below < level; below++) {
		u64 *page = new_page();

		if (!page)
			return NULL;
		*entry_of(page, address, below) = *link;
		if (below == 1)
			*lowest = entry_of(page, address, 1);
		*link = link_to(page, below);
	}
	return entry;
}

/* As if Linux had, but by one store. */
static int map_prepared(u64 *top, unsigned int levels, u64 address, u64 to)
{
	u64 link, *lowest, *entry = prepare(top, levels, address, to, &link, &lowest);

	return entry ? change("mov", entry, link) : -ENOMEM;
}

/* One leaf by a store of some kind, on some level. */
static int map_leaf(u64 *context, u64 address, u64 to, unsigned int level, const char *kind)
{
	/* Linux links tables by the locked form. */
	const char *link = strcmp(kind, "cmpxchg") ? kind : "locked";
	u64 *entry = extend(top_of(context), levels_of(context), level, address, link);

	return entry ? change(kind, entry, leaf(to, level)) : -EFAULT;
}

/* A table is what stands at an address: memory that need not be Linux's. */
static int map_foreign(u64 *context, u64 address, u64 to)
{
	u64 *entry = extend(top_of(context), levels_of(context), 2, address, "mov");

	return entry ? change("mov", entry, link_to(__va(to & ADDRESS), 1)) : -EFAULT;
}

/* A table that leads to a page of the module's. */
struct table {
	u64 *entry;	/* which names it, or a table above it */
	u64 *leaf;	/* in it */
	u64 link;	/* what names the table itself */
};

static int link_table(u64 *context, u64 address, struct table *table)
{
	u64 link;

	table->entry = prepare(top_of(context), levels_of(context), address, __pa(edu.page),
			       &link, &table->leaf);
	if (!table->entry)
		return -ENOMEM;
	table->link = link_to((void *)((u64)table->leaf & PAGE_MASK), 1);
	return change("mov", table->entry, link);
}

/* Links it at another address, too, which nobody uses, on this level. Returns the entry there. */
static u64 *link_again(u64 *context, u64 address, const struct table *table, unsigned int level)
{
	u64 other = address ^ (1ull << (shift_of(level) + 8));
	u64 *entry = extend(top_of(context), levels_of(context), level, other, "mov");

	return entry && !change("mov", entry, table->link) ? entry : NULL;
}

/* Is linked twice, on one level or on two; then it changes. */
static int map_twice(u64 *context, u64 address, u64 to, unsigned int other_level)
{
	struct table table;
	int error = link_table(context, address, &table);

	if (!error && !link_again(context, address, &table, other_level))
		error = -EFAULT;
	return error ?: change("mov", table.leaf, leaf(to, 1));
}

/* One of two links is gone when it changes. */
static int map_half_gone(u64 *context, u64 address, u64 to)
{
	struct table table;
	u64 *entry;
	int error = link_table(context, address, &table);

	if (error)
		return error;
	entry = link_again(context, address, &table, 2);
	error = entry ? change("mov", entry, 0) : -EFAULT;
	return error ?: change("mov", table.leaf, leaf(to, 1));
}

/* Is linked no more when it changes, and then it is again. */
static int map_relinked(u64 *context, u64 address, u64 to)
{
	struct table table;
	int error = link_table(context, address, &table);
	u64 link;

	if (error)
		return error;
	link = *table.entry;
	return change("mov", table.entry, 0) ?: change("mov", table.leaf, leaf(to, 1)) ?:
	       change("mov", table.entry, link);
}

/* The tables of a device that there is not are the same for a while. */
static int map_lent(u64 *context, u64 address, u64 to)
{
	u64 *own = find_function(edu.pci->devfn), *other = find_function(0x7f);
	int error;

	if (*other & PRESENT)
		return -ENODEV;
	error = change("mov", other + 1, own[1]) ?: change("mov", other, own[0]) ?:
		change("mov", other, 0);
	return error ?: map_leaf(context, address, to, 1, "mov");
}

/* The top table is one of those that it names. */
static int map_in_circle(u64 *context, u64 address, u64 to)
{
	u64 *top = top_of(context);
	int error = change("mov", &top[ENTRIES - 1], link_to(top, levels_of(context) - 1));

	return error ?: map_leaf(context, address, to, 1, "mov");
}

/* An entry that names a table becomes one that maps memory. */
static int map_grown(u64 *context, u64 address, u64 to)
{
	int error = map_leaf(context, address, __pa(edu.page), 1, "mov");

	return error ?: map_leaf(context, address, to, 2, "mov");
}

/* The opposite. */
static int map_split(u64 *context, u64 address, u64 to)
{
	u64 *entry = extend(top_of(context), levels_of(context), 2, address, "mov");
	u64 *table = new_page();
	int error = entry && table ? change("mov", entry, leaf(__pa(edu.page), 2)) : -EFAULT;

	if (error)
		return error;
	*entry_of(table, address, 1) = leaf(to, 1);
	return change("mov", entry, link_to(table, 1));
}

/* Flips a leaf of a table that is linked meanwhile. */
static struct {
	u64 *place, other, target;
} race;

static int flip(void *unused)
{
	int error = 0;

	while (!kthread_should_stop() && !error) {
		error = store_by("mov", race.place, race.other) ?:
			store_by("mov", race.place, race.target);
		cond_resched();
	}
	while (!kthread_should_stop())
		usleep_range(1000, 2000);
	return error;
}

static int map_raced(u64 *context, u64 address, u64 to)
{
	struct task_struct *thread;
	u64 link, *entry;
	int i, error = 0;

	entry = prepare(top_of(context), levels_of(context), address, to, &link, &race.place);
	if (!entry)
		return -ENOMEM;
	race.other = leaf(__pa(edu.page), 1);
	race.target = leaf(to, 1);
	thread = kthread_run_on_cpu(flip, NULL, !raw_smp_processor_id(), "race/%u");
	if (IS_ERR(thread))
		return PTR_ERR(thread);
	for (i = 0; i < RACES && !error; i++) {
		error = change("mov", entry, link);
		usleep_range(200, 2000);
		if (!error && i < RACES - 1)
			error = change("mov", entry, 0);
	}
	/* Its last store is that of the target. */
	return kthread_stop(thread) ?: error;
}

/* Replaces that entry, as Linux does: it is not present in between. */
static int change_context(u64 *context, const struct context *new)
{
	unsigned int words = context_words(), i;
	int error = 0;

	if (memcmp(&context[1], &new->word[1], (words - 1) * sizeof(u64)))
		error = change("mov", &context[0], 0);
	for (i = 1; i < words && !error; i++)
		if (context[i] != new->word[i])
			error = change("mov", &context[i], new->word[i]);
	return error ?: change("mov", &context[0], new->word[0]);
}

/* Tables from the top, which have what Linux has as well. All else is as in @new. */
static int map_by_top(u64 *context, u64 address, u64 to, struct context new)
{
	u64 *top = copy_page_of(top_of(context));
	int error = top ? map_prepared(top, levels_of(context), address, to) : -ENOMEM;

	if (error)
		return error;
	set_top(new.word, top);
	return change_context(context, &new);
}

/* Three levels instead of four. */
static int map_narrow(u64 *context, u64 address, u64 to)
{
	struct context new = context_of(context, context_words());
	u64 first = *top_of(context), *top;
	int error;

	if (levels_of(context) != 4 || first_stage || !(first & RIGHTS))
		return -ENODEV;
	top = copy_page_of(table_of(first));
	error = top ? map_prepared(top, 3, address, to) : -ENOMEM;
	if (error)
		return error;
	set_top(new.word, top);
	if (is_scalable())
		new.word[0] = (new.word[0] & ~PROCESS_WIDTH) | FIELD_PREP(PROCESS_WIDTH, 1);
	else
		new.word[1] = (new.word[1] & ~WIDTH) | 1;
	return change_context(context, &new);
}

/* Five levels of the first stage. */
static int map_wide(u64 *context, u64 address, u64 to)
{
	struct context new = context_of(context, context_words());
	u64 *top = copy_page_of(top_of(context)), *above = new_page();
	int error = top && above ? map_prepared(top, 4, address, to) : -ENOMEM;

	if (error)
		return error;
	*above = link_to(top, 4);
	set_top(new.word, above);
	new.word[TOP_OF_FIRST] |= FIELD_PREP(FIRST_LEVELS, 1);
	return change_context(context, &new);
}

/* With the domain of another device on the bus. */
static int map_in_domain(u64 *context, u64 address, u64 to)
{
	u64 mask = is_scalable() ? PROCESS_DOMAIN : DOMAIN;
	struct context new = context_of(context, context_words());
	unsigned int function;

	for (function = 0; function < 0x80; function++) {
		u64 *other = find_function(function);

		if (is_scalable())
			other = process_of(other);
		if (!other || !(*other & PRESENT) || !((other[1] ^ context[1]) & mask))
			continue;
		new.word[1] = (new.word[1] & ~mask) | (other[1] & mask);
		return map_by_top(context, address, to, new);
	}
	return -ENODEV;
}

static int pass_through(u64 *context)
{
	struct context new = context_of(context, context_words());

	forged.same = true;
	if (is_scalable()) {
		new.word[0] = (new.word[0] & ~PROCESS_KIND) | FIELD_PREP(PROCESS_KIND, KIND_PASS);
	} else {
		new.word[0] = PRESENT | PASS_THROUGH;
		new.word[1] = (new.word[1] & ~WIDTH) | 2;
	}
	return change_context(context, &new);
}

/* By tables of a guest, and the same as those of a host. */
static int map_nested(u64 *context, u64 address, u64 to)
{
	struct context new = context_of(context, context_words());

	new.word[0] = (new.word[0] & ~(PROCESS_KIND | PROCESS_WIDTH)) |
		      FIELD_PREP(PROCESS_KIND, KIND_NESTED) | FIELD_PREP(PROCESS_WIDTH, 2);
	return map_by_top(context, address, to, new);
}

/* By tables of the other stage. */
static int map_by_other_stage(u64 *context, u64 address, u64 to)
{
	struct context new = { .word = { PRESENT, context[1] & PROCESS_DOMAIN } };
	u64 *top = new_page();
	int error;

	first_stage = !first_stage;
	error = top ? map_prepared(top, 4, address, to) : -ENOMEM;
	error = error ?: map_prepared(top, 4, edu.bus, __pa(edu.page));
	new.word[0] |= FIELD_PREP(PROCESS_KIND, first_stage ? KIND_FIRST : KIND_SECOND) |
		       FIELD_PREP(PROCESS_WIDTH, 2);
	if (!error)
		set_top(new.word, top);
	first_stage = !first_stage;
	return error ?: change_context(context, &new);
}

/* Requests that name no process are another one's, which has other tables. */
static int map_by_process(u64 *context, u64 address, u64 to)
{
	u64 *device = find_function(edu.pci->devfn), *other = context + PROCESS_WORDS;
	u64 *top = copy_page_of(top_of(context));
	struct context new = context_of(context, PROCESS_WORDS);
	int error = top ? map_prepared(top, levels_of(context), address, to) : -ENOMEM;

	if (device[1] & PROCESS || *other & PRESENT)
		return -ENODEV;
	if (error)
		return error;
	set_top(new.word, top);
	error = change_context(other, &new);
	return error ?: change("mov", &device[1], device[1] | 1);
}

/*
 * The tables down from one of them, which @last tells, are the module's, with an entry of its own
 * at the end.
 */
static int map_by_copies(u64 *context, u64 address, u64 to, const char *last)
{
	const bool scalable = is_scalable();
	u64 *device = find_function(edu.pci->devfn);
	const struct {
		const char *name;
		u64 *entry;
	} steps[] = {
		/* Entries that name tables, from that of contexts upwards. */
		{ "processes", scalable ? directory_entry_of(device) : NULL },
		{ "directory", scalable ? device : NULL },
		{ "contexts", find_root_entry() },
	};
	u64 *top = copy_page_of(top_of(context));
	u64 *table = copy_page_of((u64 *)((u64)context & PAGE_MASK)), *next;
	int i, error = top && table ? map_prepared(top, levels_of(context), address, to) : -ENOMEM;

	if (error)
		return error;
	set_top(table + offset_in_page(context) / sizeof(u64), top);
	for (i = 0; i < ARRAY_SIZE(steps); i++) {
		u64 *entry = steps[i].entry;
		u64 link = entry ? (*entry & ~ADDRESS) | __pa(table) : 0;

		if (!entry)
			continue;
		if (!strcmp(steps[i].name, last))
			return change("mov", entry, link);
		next = copy_page_of((u64 *)((u64)entry & PAGE_MASK));
		if (!next)
			return -ENOMEM;
		next[offset_in_page(entry) / sizeof(u64)] = link;
		table = next;
	}
	if (!forged.root)
		forged.root = readq(unit + UNIT_ROOT);
	return set_root((forged.root & ~ADDRESS) | __pa(table));
}

/* An entry of legacy mode by which a device translates as in scalable mode; 0 without one. */
static void to_legacy(const u64 *device, u64 *entry)
{
	const u64 *process = device[0] & PRESENT ? process_of(device) : NULL;

	if (!process || FIELD_GET(PROCESS_KIND, process[0]) != KIND_SECOND)
		return;
	entry[0] = (process[0] & ADDRESS) | PRESENT;
	entry[1] = FIELD_GET(PROCESS_WIDTH, process[0]) |
		   FIELD_PREP(DOMAIN, process[1] & PROCESS_DOMAIN);
}

/* Legacy mode in place of scalable mode, for all devices. */
static int map_by_legacy(u64 *context, u64 address, u64 to)
{
	u64 old = readq(unit + UNIT_ROOT), *halves = table_of(old);
	u64 *root = new_page(), *top = copy_page_of(top_of(context));
	unsigned int bus, function;
	int error = root && top ? map_prepared(top, levels_of(context), address, to) : -ENOMEM;

	if (!is_scalable() || first_stage)
		return -ENODEV;
	for (bus = 0; bus < 256 && !error; bus++) {
		u64 *contexts;

		if (!((halves[2 * bus] | halves[2 * bus + 1]) & PRESENT))
			continue;
		contexts = new_page();
		if (!contexts)
			return -ENOMEM;
		for (function = 0; function < 256; function++) {
			u64 half = halves[2 * bus + (function >> 7)];

			if (half & PRESENT)
				to_legacy(table_of(half) + DEVICE_WORDS * (function & 0x7f),
					  contexts + 2 * function);
		}
		if (bus == edu.pci->bus->number) {
			u64 *own = contexts + 2 * edu.pci->devfn;

			*own = (*own & ~ADDRESS) | __pa(top);
		}
		root[2 * bus] = __pa(contexts) | PRESENT;
	}
	if (error)
		return error;
	forged.root = old;
	return set_root(__pa(root));
}

static int switch_off(void)
{
	forged.same = true;
	forged.off = true;
	return command(TRANSLATES, false);
}

/* Where the device finds the page that Linux has it use. */
static u64 own_address(void)
{
	if (forged.same)
		return __pa(edu.page);
	return forged.below ? edu.bus % forged.below : edu.bus;
}

/* Moves bytes between the device's memory, from a word on, and an address. */
static int transfer(u64 address, unsigned int word, size_t size, bool to_memory)
{
	u64 own = EDU_MEMORY + word * sizeof(u64);
	u32 status;

	writeq(to_memory ? own : address, edu.registers + EDU_SOURCE);
	writeq(to_memory ? address : own, edu.registers + EDU_TARGET);
	writeq(size, edu.registers + EDU_COUNT);
	writel(EDU_START | (to_memory ? EDU_TO_MEMORY : 0), edu.registers + EDU_COMMAND);
	return readl_poll_timeout(edu.registers + EDU_COMMAND, status, !(status & EDU_START), 1000,
				  EDU_PATIENCE);
}

/* Returns a word of the device's that holds NOTHING, or an error. */
static int take_word(void)
{
	int i, error;

	if (edu.fresh < EDU_WORDS)
		return edu.fresh++;
	for (i = EDU_FRESH; i < EDU_WORDS; i++)
		WRITE_ONCE(edu.page[i], NOTHING);
	error = transfer(own_address() + EDU_FRESH * sizeof(u64), EDU_FRESH,
			 (EDU_WORDS - EDU_FRESH) * sizeof(u64), false);
	edu.fresh = EDU_FRESH + 1;
	return error ?: EDU_FRESH;
}

/* The device keeps a value, which it does not have to be given before it writes it. */
static int hold(u64 value)
{
	int error;

	WRITE_ONCE(*edu.page, value);
	error = transfer(own_address(), EDU_HELD, sizeof(value), false);
	edu.held = error ? 0 : value;
	return error;
}

static int write_by_edu(u64 address, u64 value)
{
	int word, error;

	if (value && value == edu.held)
		return transfer(address, EDU_HELD, sizeof(value), true);
	word = take_word();
	if (word < 0)
		return word;
	WRITE_ONCE(*edu.page, value);
	error = transfer(own_address(), word, sizeof(value), false);
	return error ?: transfer(address, word, sizeof(value), true);
}

static int read_by_edu(u64 address, u64 *value)
{
	int word = take_word(), error;

	if (word < 0)
		return word;
	WRITE_ONCE(*edu.page, UNREAD);
	error = transfer(address, word, sizeof(*value), false) ?:
		transfer(own_address(), word, sizeof(*value), true);
	/* Its own page may be lost to it as well, but not what it has read. */
	if (!error && READ_ONCE(*edu.page) == UNREAD)
		error = forget() ?: transfer(own_address(), word, sizeof(*value), true);
	*value = READ_ONCE(*edu.page);
	return error;
}

/* The device stores the leaf into a table that Linux linked, and the processor does not. */
static int map_by_device(u64 *context, u64 address, u64 to)
{
	/* Tables for the address, and an address at which the device sees the lowest one. */
	u64 *entry = extend(top_of(context), levels_of(context), 1, address, "mov");
	u64 window = address ^ PAGE_SIZE;
	int error;

	if (!entry)
		return -EFAULT;
	/* Is undone by the processor. */
	error = change("mov", entry, 0) ?: map_leaf(context, window, __pa(entry), 1, "mov");
	return error ?: write_by_edu(window + offset_in_page(entry), leaf(to, 1));
}

/* Pieces of 64 KiB, in all entries that tell of one. */
static int map_sized(u64 *context, u64 address, u64 to)
{
	u64 first = address & -0x10000ull;
	u64 *entry = extend(top_of(context), levels_of(context), 1, first, "mov");
	u64 piece = (to & ADDRESS & -0x10000ull) | 0x7000 | PRESENT | AMD_RIGHTS | AMD_SIZED;
	int i, error = entry ? 0 : -EFAULT;

	for (i = 0; i < 16 && !error; i++)
		error = change("mov", entry + i, piece);
	return error;
}

/* An entry of the third level names a table of the first one. */
static int map_skipping(u64 *context, u64 address, u64 to)
{
	u64 *entry = extend(top_of(context), levels_of(context), 3, address, "mov");
	u64 *table = new_page();
	int i;

	if (!entry || !table)
		return -ENOMEM;
	/* Whatever is taken for its number. */
	for (i = 0; i < ENTRIES; i++)
		table[i] = leaf(to, 1);
	return change("mov", entry, link_to(table, 1));
}

/* More levels above, or as many in another table. */
static int map_higher(u64 *context, u64 address, u64 to, unsigned int more)
{
	u64 *top = copy_page_of(top_of(context));
	unsigned int level = levels_of(context);
	int error = top ? map_prepared(top, level, address, to) : -ENOMEM;

	while (!error && more--) {
		u64 *above = new_page();

		if (!above)
			return -ENOMEM;
		*above = link_to(top, level++);
		top = above;
	}
	return error ?: change("mov", context, (*context & ~(ADDRESS | AMD_LEVEL)) | __pa(top) |
					       AMD_TO_LEVEL(level));
}

/* Without the upper level. The page that the device uses is in the way of no other one. */
static int map_lower(u64 *context, u64 address, u64 to)
{
	u64 first = *top_of(context), *top;
	unsigned int level = levels_of(context) - 1;
	int error;

	top = first & PRESENT ? copy_page_of(table_of(first)) : new_page();
	error = top ? map_prepared(top, level, address, to) : -ENOMEM;
	forged.below = 1ull << shift_of(level + 1);
	error = error ?: map_prepared(top, level, edu.bus % forged.below, __pa(edu.page));
	return error ?: change("mov", context, (*context & ~(ADDRESS | AMD_LEVEL)) | __pa(top) |
					       AMD_TO_LEVEL(level));
}

/* The tables of a device that there is not are the same for a while. */
static int map_lent_by_amd(u64 *context, u64 address, u64 to)
{
	/* Function 7 of the device that has one. */
	u64 *other = context + 7 * 4;
	int error = change("mov", other + 1, context[1]) ?: change("mov", other, context[0]) ?:
		    forget() ?: change("mov", other, PRESENT | AMD_TRANSLATES);

	return error ?: map_leaf(context, address, to, 1, "mov");
}

/* In a device table of the module's. */
static int map_by_table(u64 *context, u64 address, u64 to)
{
	u64 *top = copy_page_of(top_of(context));
	int error = top ? map_prepared(top, levels_of(context), address, to) : -ENOMEM;

	return error ?: attack_amd_table((*context & ~ADDRESS) | __pa(top), context[2]);
}

/* What is not the same in tables of AMD's kind; -ENOENT if that is no such way. */
static int map_by_amd(const char *how, u64 *context, u64 address, u64 to)
{
	if (!strcmp(how, "sized"))
		return map_sized(context, address, to);
	if (!strcmp(how, "skipped"))
		return map_skipping(context, address, to);
	if (!strcmp(how, "lent"))
		return map_lent_by_amd(context, address, to);
	if (!strcmp(how, "narrow"))
		return map_lower(context, address, to);
	if (!strcmp(how, "higher"))
		return map_higher(context, address, to, 1);
	if (!strcmp(how, "highest"))
		return map_higher(context, address, to, 6 - levels_of(context));
	if (!strcmp(how, "top"))
		return map_higher(context, address, to, 0);
	if (!strcmp(how, "domain"))
		return change("mov", &context[1], context[1] ^ 1) ?:
		       map_higher(context, address, to, 0);
	if (!strcmp(how, "table"))
		return map_by_table(context, address, to);
	if (!strcmp(how, "pass") || !strcmp(how, "off") || !strcmp(how, "none")) {
		forged.same = true;
		if (*how == 'p')
			return change("mov", context, *context & ~(ADDRESS | AMD_LEVEL));
		/* Not valid, or without valid tables. */
		return change("mov", context, *context & ~(*how == 'o' ? PRESENT : AMD_TRANSLATES));
	}
	if (!strcmp(how, "nested"))
		return map_higher(context, address, to, 0) ?:
		       change("mov", context, *context | AMD_NESTED);
	return -ENOENT;
}

/* What there is in scalable mode alone; -ENOENT if that is no such way. */
static int map_in_scalable_mode(const char *how, u64 *context, u64 address, u64 to)
{
	if (!strcmp(how, "process"))
		return map_by_process(context, address, to);
	if (!strcmp(how, "processes") || !strcmp(how, "directory"))
		return map_by_copies(context, address, to, how);
	if (!strcmp(how, "legacy"))
		return map_by_legacy(context, address, to);
	if (!strcmp(how, "nested"))
		return map_nested(context, address, to);
	if (!strcmp(how, "stage"))
		return map_by_other_stage(context, address, to);
	if (!strcmp(how, "wide"))
		return map_wide(context, address, to);
	return -ENOENT;
}

static int map(const char *how, u64 address, u64 to)
{
	u64 *context = find_context();
	int error;

	if (!context || !(*context & PRESENT))
		return -ENODEV;
	error = -ENOENT;
	if (!unit)
		error = map_by_amd(how, context, address, to);
	else if (is_scalable())
		error = map_in_scalable_mode(how, context, address, to);
	if (error != -ENOENT)
		return error;
	if (!strcmp(how, "large"))
		return map_leaf(context, address, to, 2, "mov");
	if (!strcmp(how, "huge"))
		return map_leaf(context, address, to, 3, "mov");
	if (!strcmp(how, "prepared"))
		return map_prepared(top_of(context), levels_of(context), address, to);
	if (!strcmp(how, "foreign"))
		return map_foreign(context, address, to);
	if (!strcmp(how, "twice"))
		return map_twice(context, address, to, 2);
	if (!strcmp(how, "levels"))
		return map_twice(context, address, to, 3);
	if (!strcmp(how, "half-gone"))
		return map_half_gone(context, address, to);
	if (!strcmp(how, "relinked"))
		return map_relinked(context, address, to);
	if (!strcmp(how, "lent"))
		return map_lent(context, address, to);
	if (!strcmp(how, "circle"))
		return map_in_circle(context, address, to);
	if (!strcmp(how, "grown"))
		return map_grown(context, address, to);
	if (!strcmp(how, "split"))
		return map_split(context, address, to);
	if (!strcmp(how, "raced"))
		return map_raced(context, address, to);
	if (!strcmp(how, "device"))
		return map_by_device(context, address, to);
	if (!strcmp(how, "top"))
		return map_by_top(context, address, to, context_of(context, context_words()));
	if (!strcmp(how, "narrow"))
		return map_narrow(context, address, to);
	if (!strcmp(how, "domain"))
		return map_in_domain(context, address, to);
	if (!strcmp(how, "contexts") || !strcmp(how, "root"))
		return map_by_copies(context, address, to, how);
	if (!strcmp(how, "pass"))
		return pass_through(context);
	if (!strcmp(how, "off"))
		return switch_off();
	return map_leaf(context, address, to, 1, how);
}

/* Entries of a table of random ones that are used. */
#define RANDOM_ENTRIES	4

/* Tables of random entries, which name each other, and addresses that lead to the target. */
static struct {
	u64 *table[16];
	u64 target;
	u64 found[4];
	unsigned int count;
} chance;

static const char *const kinds[] = {
	"mov", "mov", "mov", "mov", "cmpxchg", "locked", "halves", "bytes", "string", "xchg",
	"movnti", "add", "or",
};

static u64 random_entry(struct rnd_state *state)
{
	u64 table = __pa(chance.table[prandom_u32_state(state) % ARRAY_SIZE(chance.table)]);
	u32 choice = prandom_u32_state(state);
	u64 allowed = choice >> 8 & 7 ? rights() : choice >> 11 & rights();

	switch (choice % 12) {
	case 0:
		return 0;
	case 1:
		return leaf(chance.target, 2 + (choice >> 16 & 1));
	case 2:
		return (leaf(chance.target, 1) & ~rights()) | allowed;
	case 3:
		return __pa(edu.page) | allowed;
	case 4:
		return table | LARGE | allowed;
	case 5:
		return (u64)choice << 32 | prandom_u32_state(state);
	default:
		return table | allowed;
	}
}

static u64 *find_table(u64 entry)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(chance.table); i++)
		if ((entry ^ __pa(chance.table[i])) < PAGE_SIZE)
			return chance.table[i];
	return NULL;
}

/* Finds addresses below a table that lead to the target. BASE is its first one. */
static void find_target(u64 *table, unsigned int level, u64 base)
{
	u64 rest = chance.target % (1ull << shift_of(level)), address = base;
	int i;

	for (i = 0; i < RANDOM_ENTRIES; i++, address += 1ull << shift_of(level)) {
		if (chance.count == ARRAY_SIZE(chance.found))
			return;
		if ((table[i] & rights()) != rights())
			continue;
		if (table[i] == leaf(chance.target, level))
			chance.found[chance.count++] = address + rest;
		else if (level > 1 && !(table[i] & LARGE) && find_table(table[i]))
			find_target(find_table(table[i]), level - 1, address);
	}
}

/* One store into one of the tables, or to LINK, which names one. How many faulted: 0 or 1. */
static int store_randomly(struct rnd_state *state, u64 *link)
{
	u32 choice = prandom_u32_state(state);
	u64 *place = chance.table[choice >> 8 & (ARRAY_SIZE(chance.table) - 1)];
	const char *kind = kinds[(choice >> 16) % ARRAY_SIZE(kinds)];
	u64 value = random_entry(state);
	int error;

	place += choice % RANDOM_ENTRIES;
	if (choice >> 24 == 0) {
		place = link;
		kind = "mov";
		value = find_table(value) ? (value & ADDRESS) | full_rights() : 0;
	}
	error = store_by(kind, place, value);
	clflush_cache_range(place, sizeof(*place));
	return !!error;
}

/*
 * Stores entries from a seed into tables of which one is linked for ADDRESS, in 512 GiB of which
 * nothing is used. Goes on until something leads to the target.
 */
static int store_at_random(u64 seed, unsigned int stores, u64 address, u64 to, char *result,
			   size_t size)
{
	unsigned int i, faults = 0, reached = 0;
	u64 *context = find_context(), *link, value;
	struct rnd_state state;
	int error;

	if (!context || levels_of(context) != 4)
		return -ENODEV;
	prandom_seed_state(&state, seed);
	for (i = 0; i < ARRAY_SIZE(chance.table); i++) {
		chance.table[i] = new_page();
		if (!chance.table[i])
			return -ENOMEM;
	}
	chance.target = to;
	chance.count = 0;
	link = entry_of(top_of(context), address, 4);
	address &= -(1ull << shift_of(4));
	error = change("mov", link, link_to(chance.table[0], 3));
	for (i = 0; i < 100 * stores && !chance.count && !error; i++) {
		faults += store_randomly(&state, link);
		if (i % 4096 == 4095)
			error = forget();
		if (i >= stores && find_table(*link))
			find_target(find_table(*link), 3, address);
		cond_resched();
	}
	error = error ?: forget();
	for (i = 0; i < chance.count && !error; i++) {
		error = read_by_edu(chance.found[i], &value);
		reached += !error && value && value != NOTHING;
	}
	return error ?: snprintf(result, size, "%u %u %u\n", faults, chance.count, reached);
}

struct pci_dev *attack_find_edu(void)
{
	struct pci_dev *pci = NULL;
	unsigned int i;

	for (i = 0; i <= edu_number && (!i || pci); i++)
		pci = pci_get_device(EDU_VENDOR, EDU_DEVICE, pci);
	return pci;
}

static int map_own_page(void)
{
	int error = dma_set_mask(&edu.pci->dev, DMA_BIT_MASK(32));

	if (error)
		return error;
	edu.page = (void *)get_zeroed_page(GFP_KERNEL);
	if (!edu.page)
		return -ENOMEM;
	edu.bus = dma_map_single(&edu.pci->dev, edu.page, PAGE_SIZE, DMA_BIDIRECTIONAL);
	if (!dma_mapping_error(&edu.pci->dev, edu.bus))
		return 0;
	free_page((unsigned long)edu.page);
	edu.page = NULL;
	return -EIO;
}

static void unmap_own_page(void)
{
	dma_unmap_single(&edu.pci->dev, edu.bus, PAGE_SIZE, DMA_BIDIRECTIONAL);
	free_page((unsigned long)edu.page);
	edu.page = NULL;
}

/* Leaves what it got to attack_end_dma(). */
static int begin(void)
{
	int error;

	if (edu.page)
		return 0;
	unit = attack_map_unit();
	edu.pci = attack_find_edu();
	if (!edu.pci)
		return -ENODEV;
	error = pci_enable_device(edu.pci);
	if (error)
		return error;
	edu.registers = pci_iomap(edu.pci, 0, 0);
	if (!edu.registers)
		return -ENOMEM;
	pci_set_master(edu.pci);
	edu.fresh = EDU_WORDS;
	return map_own_page();
}

void attack_end_dma(void)
{
	if (edu.page) {
		undo();
		unmap_own_page();
	}
	if (edu.registers) {
		pci_clear_master(edu.pci);
		pci_iounmap(edu.pci, edu.registers);
		pci_disable_device(edu.pci);
		edu.registers = NULL;
	}
	pci_dev_put(edu.pci);
	edu.pci = NULL;
	if (unit)
		iounmap(unit);
	unit = NULL;
}

/* What the device reads, or "nothing". */
static int show(u64 address, char *result, size_t size)
{
	u64 value;
	int error = read_by_edu(address, &value);

	if (error)
		return error;
	if (value == NOTHING || value == UNREAD)
		return snprintf(result, size, "nothing\n");
	return snprintf(result, size, "%#llx\n", value);
}

/* By the DMA functions of Linux: a page is mapped, and the device writes to it. */
static int use_linux(char *result, size_t size)
{
	struct device *device = &edu.pci->dev;
	u64 *page = (void *)get_zeroed_page(GFP_KERNEL), value = 0;
	dma_addr_t bus;
	int error = -EIO;

	if (!page)
		return -ENOMEM;
	bus = dma_map_single(device, page, PAGE_SIZE, DMA_BIDIRECTIONAL);
	if (!dma_mapping_error(device, bus)) {
		error = write_by_edu(bus + 8, ~NOTHING) ?: read_by_edu(bus + 8, &value);
		dma_unmap_single(device, bus, PAGE_SIZE, DMA_BIDIRECTIONAL);
	}
	if (!error && (value != ~NOTHING || READ_ONCE(page[1]) != ~NOTHING))
		error = snprintf(result, size, "%#llx %#llx\n", value, READ_ONCE(page[1]));
	else if (!error)
		error = snprintf(result, size, "fine\n");
	free_page((unsigned long)page);
	return error;
}

/* Writes a word of RAM by the CPU. */
static int poke(u64 address, u64 value)
{
	if (!pfn_valid(PHYS_PFN(address)) || !page_is_ram(PHYS_PFN(address)))
		return -EINVAL;
	return store_by("mov", __va(address), value);
}

/* What the processor reads. */
static int peek(u64 address, char *result, size_t size)
{
	void __iomem *place;
	u64 value;

	if (pfn_valid(PHYS_PFN(address)) && page_is_ram(PHYS_PFN(address))) {
		if (copy_from_kernel_nofault(&value, __va(address), sizeof(value)))
			return snprintf(result, size, "nothing\n");
		return snprintf(result, size, "%#llx\n", value);
	}
	place = ioremap(address, sizeof(value));
	if (!place)
		return -ENOMEM;
	value = readl(place) | (u64)readl(place + 4) << 32;
	iounmap(place);
	return snprintf(result, size, "%#llx\n", value);
}

int attack_by_dma(const char *command, char *result, size_t size)
{
	u64 address, value, seed;
	unsigned int stores;
	char how[16];
	int error = begin();

	if (error)
		return error;
	if (sscanf(command, "random %lli %u %lli %lli", &seed, &stores, &address, &value) == 4)
		return store_at_random(seed, stores, address, value, result, size);
	if (sscanf(command, "map %15s %lli %lli", how, &address, &value) == 3)
		return snprintf(result, size, "%d\n", map(how, address, value));
	if (sysfs_streq(command, "forget"))
		return snprintf(result, size, "%d\n", forget());
	if (sysfs_streq(command, "revert"))
		return snprintf(result, size, "%d\n", revert());
	if (sysfs_streq(command, "undo"))
		return snprintf(result, size, "%d\n", undo());
	if (sscanf(command, "read %lli", &address) == 1)
		return show(address, result, size);
	if (sscanf(command, "hold %lli", &value) == 1)
		return hold(value) ?: snprintf(result, size, "0\n");
	if (sscanf(command, "write %lli %lli", &address, &value) == 2)
		return write_by_edu(address, value) ?: snprintf(result, size, "0\n");
	if (sscanf(command, "peek %lli", &address) == 1)
		return peek(address, result, size);
	if (sscanf(command, "poke %lli %lli", &address, &value) == 2)
		return snprintf(result, size, "%d\n", poke(address, value));
	if (sysfs_streq(command, "linux"))
		return use_linux(result, size);
	return -EINVAL;
}
