// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attacks at random. Each has a seed, by which it comes again, and prefers values at which
 * something may begin or end. Each leaves out what harms nobody but Linux itself, or what root may
 * do; its comment says what.
 */
#include <linux/delay.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <asm/asm.h>
#include <asm/msr.h>

#include "compat.h"
#include "hypercall.h"
#include "random.h"

/* A block of memory that changes owner. */
#define BLOCK_ORDER	9
#define BLOCK_BYTES	(PAGE_SIZE << BLOCK_ORDER)
/* Blocks that cells may get. */
#define BLOCKS		4
/* Most blocks that Linux does not have, to name them in calls. */
#define FOREIGN		64
/* End of the memory in which blocks are looked for. */
#define MEMORY_END	BIT_ULL(36)
/* Most that a clock moves between two looks. */
#define MOST_MOVED	BIT_ULL(36)
/* Between two looks whether another thread wants the CPU. */
#define STRETCH		256

/* xorshift64*, S. Vigna, "An experimental exploration of Marsaglia's xorshift generators". */
static u64 state;

static u64 draw(void)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dULL;
}

/* A number below `end`. */
static u32 below(u32 end)
{
	return (draw() >> 32) % end;
}

static void sow(u64 seed)
{
	int i;

	/* Never 0, which would stay. */
	state = seed * 2 + 1;
	for (i = 0; i < 16; i++)
		draw();
}

static const u64 edges[] = {
	0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 255, 256, 0xfff, 0x1000, 0xffff, 0x10000,
	0x1fffff, 0x200000, 0x7fffffff, 0x80000000, 0xc0000000, 0xfec00000, 0xfee00000, 0xffffffff,
	0x100000000, 0x7fffffffff, 0x8000000000, 0x7ffffffff000, 0x7fffffffffff, 0x800000000000,
	0xffff800000000000, 0xffffffff80000000, 0x7fffffffffffffff, 0x8000000000000000, -0x1000ULL,
	-8ULL, -2ULL, -1ULL,
};

static u64 edge(void)
{
	return edges[below(ARRAY_SIZE(edges))];
}

/* Any word, more often one that may mean something. */
static u64 word(void)
{
	switch (below(8)) {
	case 0 ... 2:
		return edge();
	case 3:
		return 1ULL << below(64);
	case 4:
		return below(64);
	case 5:
		return (u64)below(0x100000) << PAGE_SHIFT;
	case 6:
		return draw() >> 32;
	default:
		return draw();
	}
}

/* --- Calls into the hypervisor --- */

static struct page *blocks[BLOCKS];
static u64 foreign[FOREIGN];
static unsigned int foreign_count;
static struct crtos_cell_config *config;	/* a page of its own */
static struct crtos_region *region;		/* the same */
static void *code;				/* a page full of HLT */

/*
 * What must not be called: what ends the realm or hides its doorbell, which root may do, and what
 * takes memory, ports or a CPU from Linux that Linux uses.
 */
struct rules {
	u64 realm;		/* number of its cell */
	unsigned int cpu;	/* one that is offline */
	u64 latest;		/* number of the cell that was made last */
};

/* A block of memory that Linux does not miss. */
static u64 spare_block(void)
{
	switch (below(8)) {
	case 0:
		return foreign_count ? foreign[below(foreign_count)] : MEMORY_END;
	case 1:
		return MEMORY_END + draw() % MEMORY_END / BLOCK_BYTES * BLOCK_BYTES;
	case 2:
		/* Not aligned, so never taken. */
		return page_to_phys(blocks[below(BLOCKS)]) + 8 + below(0x1000) * 8;
	case 3:
		return 0xfec00000 + below(4) * BLOCK_BYTES;
	default:
		return page_to_phys(blocks[below(BLOCKS)]);
	}
}

/* An address of a word that Linux may have read. */
static u64 source(void)
{
	switch (below(8)) {
	case 0:
		return word();
	case 1:
		return spare_block();
	case 2:
		return virt_to_phys(code) + BLOCK_BYTES - 8;
	case 3:
		return virt_to_phys(config) + below(64) * 8;
	default:
		return virt_to_phys(code);
	}
}

/* Fills the region that the next call names. */
static u64 draw_region(void)
{
	if (!below(16))
		return source();
	region->flags = below(2) ? CRTOS_REGION_PRIVATE | below(4) : below(8);
	region->reserved = below(16) ? 0 : word();
	region->size = below(4) ? BLOCK_BYTES : word();
	region->cell_address = below(2) ? (u64)below(BLOCKS) * BLOCK_BYTES : word();
	/* What a cell shares, Linux keeps. */
	if (region->flags & CRTOS_REGION_PRIVATE || below(2))
		region->physical = spare_block();
	else
		region->physical = word();
	return virt_to_phys(region);
}

/* True if a CPU of Linux is in the configuration. */
static bool draw_config(const struct rules *rules)
{
	bool online = false;
	u32 i;

	memset(config, 0, sizeof(*config));
	for (i = 0; i < CRTOS_CELL_NAME_LEN; i++)
		config->name[i] = below(8) ? 'a' + below(26) : draw();
	config->doorbell_vector = below(4) ? 32 + below(224) : word();
	config->link_vector = below(4) ? 32 + below(224) : word();
	config->cpu_count = below(4) ? 1 : word();
	for (i = 0; i < CRTOS_MAX_CELL_CPUS; i++) {
		config->cpus[i] = below(4) || !i ? rules->cpu : word();
		if (!below(16))
			config->cpus[i] = word();
		if (i < config->cpu_count && config->cpus[i] != rules->cpu)
			online = true;
	}
	config->port_count = below(4) ? below(4) : word();
	for (i = 0; i < CRTOS_MAX_PORT_RANGES; i++) {
		struct crtos_port_range *range = &config->ports[i];

		/* To have alone: ports without a device, or all, which is refused. */
		range->flags = below(4) ? CRTOS_PORT_EXCLUSIVE : word();
		range->first = 0x300 + below(0x40);
		range->last = below(8) ? range->first + below(0x20) : range->first - 1;
		if (!below(16)) {
			range->first = 0;
			range->last = 0xffff;
		}
	}
	config->msr_count = below(4) ? below(3) : word();
	for (i = 0; i < CRTOS_MAX_MSR_RANGES; i++) {
		config->msrs[i].first = below(2) ? 0xc0010000 + below(0x300) : word();
		config->msrs[i].last = config->msrs[i].first + (below(4) ? below(8) : word());
		config->msrs[i].flags = below(4) ? below(4) : word();
	}
	return online;
}

static u64 draw_cell(const struct rules *rules)
{
	switch (below(8)) {
	case 0:
		return word();
	case 1:
		return rules->realm;
	case 2:
		return below(CRTOS_MAX_CELLS + 2);
	default:
		return rules->latest;
	}
}

/* Makes a call. Its number is in RAX, as its result is. */
static s64 call_at_random(struct rules *rules)
{
	u64 number = below(16) ? below(CRTOS_HC_CELL_UNLOCK + 2) : word();
	u64 a = draw_cell(rules), b = word(), c = word(), d = word();
	bool online = false;
	s64 result;

	switch (number) {
	case CRTOS_HC_CELL_CREATE:
		online = draw_config(rules);
		a = below(16) ? virt_to_phys(config) : source() | 1;
		break;
	case CRTOS_HC_CELL_MAP:
		b = draw_region();
		break;
	case CRTOS_HC_CELL_LOAD:
		b = below(4) ? below(BLOCKS) * BLOCK_BYTES + below(512) * PAGE_SIZE : word();
		c = source();
		d = below(4) ? below(0x1000) : word();
		break;
	case CRTOS_HC_CELL_START:
		b = below(4) ? below(BLOCKS) * BLOCK_BYTES : b;
		c = below(4) ? below(BLOCKS) * BLOCK_BYTES : c;
		break;
	case CRTOS_HC_CELL_STOP:
		if (a == rules->realm)
			a = rules->realm + 1;
		break;
	case CRTOS_HC_CELL_LOCK:
		/* Nobody would end it. */
		a = CRTOS_MAX_CELLS + below(100);
		break;
	case CRTOS_HC_DOORBELL_ROUTE:
		/* Nothing is home by so much. */
		if (a == rules->realm)
			d = 2 + below(100);
		break;
	}
	result = crtos_hypercall(number, a, b, c, d);
	if (number != CRTOS_HC_CELL_CREATE || result < 0)
		return result;
	/* A cell with a CPU that Linux uses is not started. */
	if (online)
		crtos_hypercall(CRTOS_HC_CELL_DESTROY, result, 0, 0, 0);
	else
		rules->latest = result;
	return result;
}

/* Ends all cells but the realm; false if one does not end. */
static bool end_cells(u64 realm)
{
	u64 cell;

	for (cell = 0; cell < CRTOS_MAX_CELLS; cell++) {
		s64 result;

		if (cell == realm)
			continue;
		if (crtos_hypercall(CRTOS_HC_CELL_STOP, cell, 0, 0, 0) == CRTOS_HV_NO_CELL)
			continue;
		do {
			result = crtos_hypercall(CRTOS_HC_CELL_RECLAIM, cell, 0, 0, 0);
		} while (result == 1);
		if (result || crtos_hypercall(CRTOS_HC_CELL_DESTROY, cell, 0, 0, 0))
			return false;
	}
	return true;
}

/* Finds the blocks that Linux does not have. Touching one is a page fault. */
static void find_foreign(void)
{
	u64 address, value;

	foreign_count = 0;
	for (address = 0; address < MEMORY_END && foreign_count < FOREIGN; address += BLOCK_BYTES)
		if (page_is_ram(PHYS_PFN(address)) &&
		    copy_from_kernel_nofault(&value, __va(address), sizeof(value)))
			foreign[foreign_count++] = address;
}

/* Lets the blocks go, if Linux has them all; they were cleared then. */
static int free_blocks(void)
{
	int i, error = 0;
	u64 value;

	for (i = 0; i < BLOCKS; i++) {
		if (!blocks[i])
			continue;
		if (copy_from_kernel_nofault(&value, page_address(blocks[i]), sizeof(value)))
			error = -EIO;
		else
			__free_pages(blocks[i], BLOCK_ORDER);
		blocks[i] = NULL;
	}
	return error;
}

static int hypercalls(u64 count, u64 realm, unsigned int cpu, char *result, size_t size)
{
	struct rules rules = { .realm = realm, .cpu = cpu, .latest = realm + 1 };
	u64 done = 0, refused = 0, wrong = 0, i;
	int error = -ENOMEM;

	config = (void *)get_zeroed_page(GFP_KERNEL);
	region = (void *)get_zeroed_page(GFP_KERNEL);
	code = (void *)get_zeroed_page(GFP_KERNEL);
	for (i = 0; i < BLOCKS; i++)
		blocks[i] = alloc_pages(GFP_KERNEL | __GFP_ZERO, BLOCK_ORDER);
	if (!config || !region || !code || !blocks[0] || !blocks[1] || !blocks[2] || !blocks[3])
		goto out;
	memset(code, 0xf4, PAGE_SIZE);
	find_foreign();
	for (i = 0; i < count; i++) {
		s64 answer = call_at_random(&rules);

		if (answer >= 0 && answer <= CRTOS_MAX_CELLS)
			done++;
		else if (answer < 0 && answer >= CRTOS_HV_LOCKED)
			refused++;
		else
			wrong++;
		if (i % STRETCH == 0)
			cond_resched();
	}
	error = end_cells(realm) ? 0 : -EBUSY;
out:
	error = free_blocks() ?: error;
	free_page((unsigned long)config);
	free_page((unsigned long)region);
	free_page((unsigned long)code);
	return error ?: snprintf(result, size, "%llu done %llu refused %llu wrong\n", done, refused,
				 wrong);
}

/* --- Model-specific registers --- */

struct numbers {
	u32 first, last;
};

/* Registers that Linux may write, see lib/partition/src/registers.rs: it would harm itself. */
static const struct numbers allowed[] = {
	{ 0x48, 0x49 }, { 0x10b, 0x10b }, { 0x174, 0x176 }, { 0x17a, 0x17b }, { 0x1c4, 0x1c5 },
	{ 0x1d9, 0x1d9 }, { 0x277, 0x277 }, { 0x400, 0x47f }, { 0x6a0, 0x6a0 }, { 0x6a2, 0x6a2 },
	{ 0x6a4, 0x6a8 }, { 0x6e0, 0x6e0 }, { 0x800, 0x8ff }, { 0xc81, 0xc81 }, { 0xc8d, 0xc8d },
	{ 0xc8f, 0xd0f }, { 0xda0, 0xda0 }, { 0xc0000080, 0xc0000084 }, { 0xc0000100, 0xc0000103 },
	{ 0xc000010e, 0xc000010f }, { 0xc0000200, 0xc000020f }, { 0xc0000280, 0xc000028f },
	{ 0xc0000300, 0xc0000303 }, { 0xc00003fd, 0xc0000410 }, { 0xc0000500, 0xc0000502 },
	{ 0xc0002000, 0xc0002fff }, { 0xc0010000, 0xc0010007 }, { 0xc0010062, 0xc0010062 },
	{ 0xc001011f, 0xc001011f }, { 0xc0010200, 0xc001021f }, { 0xc0010230, 0xc001025f },
	{ 0xc00102b1, 0xc00102b1 }, { 0xc00102b3, 0xc00102b3 }, { 0xc0010300, 0xc001031f },
	{ 0xc0010800, 0xc00108ff }, { 0xc0011019, 0xc001101b }, { 0xc0011027, 0xc0011027 },
	{ 0xc0011030, 0xc0011039 }, { 0xc001103b, 0xc001103d },
};

/*
 * Registers that move by themselves: clocks, and what counts at the speed of the processor. Now and
 * then one has just the value that is written, which then is no change.
 */
static const struct numbers moving[] = {
	{ 0x10, 0x10 }, { 0xe7, 0xe8 }, { 0xc00000e7, 0xc00000e9 }, { 0x40000020, 0x40000021 },
};

/* Those of which Linux may change some bits, or may try to, without effect. */
static const struct numbers partly[] = {
	{ 0xc0010015, 0xc0010015 }, { 0xc001001f, 0xc001001f }, { 0xc0011020, 0xc0011020 },
};

static const struct numbers swallowed[] = {
	{ 0x2ff, 0x2ff }, { 0xc0010020, 0xc0010020 }, { 0xc0010114, 0xc0010114 },
	{ 0xc0010117, 0xc0010117 },
};

/*
 * Where the local APIC lacks a register, the emulator notes an error for ever, and Linux then gives
 * up on CPUs that it starts from here.
 */
static const struct numbers unread[] = { { 0x800, 0x8ff } };

/* Around these something is to be had: clock, APIC, memory types, SYSCFG, SMM, SVM. */
static const u32 wanted[] = {
	0x10, 0x1b, 0x3b, 0x79, 0x8b, 0x9b, 0xfe, 0x1a0, 0x200, 0x20f, 0x250, 0x258, 0x268, 0x26f,
	0x2ff, 0x830, 0xc0000080, 0xc0000104, 0xc0010010, 0xc0010015, 0xc0010016, 0xc001001a,
	0xc001001d, 0xc001001f, 0xc0010020, 0xc0010050, 0xc0010058, 0xc0010064, 0xc0010073,
	0xc0010111, 0xc0010112, 0xc0010113, 0xc0010114, 0xc0010115, 0xc0010116, 0xc0010117,
	0xc001011b, 0xc0010130, 0xc0010132, 0x4b564d00, 0x40000000, 0x1fff, 0x2000, 0xbfffffff,
	0xc0001fff, 0xc0003000, 0xc000ffff, 0xc0011fff, 0xc0012000,
};

static bool is_in(u32 number, const struct numbers *ranges, size_t count)
{
	for (; count; count--, ranges++)
		if (ranges->first <= number && number <= ranges->last)
			return true;
	return false;
}

static u32 draw_register(void)
{
	static const u32 bases[] = { 0, 0xc0000000, 0xc0010000 };

	switch (below(8)) {
	case 0 ... 2:
		return wanted[below(ARRAY_SIZE(wanted))];
	case 3:
		return wanted[below(ARRAY_SIZE(wanted))] + below(16) - 8;
	case 4:
		return draw();
	case 5:
		return bases[below(3)] + 0x1f00 + below(0x200);
	default:
		return bases[below(3)] + below(0x2000);
	}
}

/* Whether a write did what Linux may not do. */
static bool is_breach(u32 number, u64 value, u64 before, u64 after, bool done)
{
	if (is_in(number, partly, ARRAY_SIZE(partly)))
		return done || before != after;
	if (is_in(number, moving, ARRAY_SIZE(moving)))
		return after - before > MOST_MOVED;
	if (before != after)
		return true;
	/* Some registers of an emulator forget what is written, and read as 0. */
	return done && value != before && !is_in(number, swallowed, ARRAY_SIZE(swallowed));
}

static int registers(u64 count, char *result, size_t size)
{
	u64 reads = 0, faults = 0, writes = 0, breaches = 0, first = 0, i;

	for (i = 0; i < count; i++) {
		u64 before = 0, after = 0, value;
		u32 number = draw_register();
		bool readable, done;

		if (is_in(number, unread, ARRAY_SIZE(unread)))
			continue;
		get_cpu();
		readable = !rdmsrq_safe(number, &before);
		if (is_in(number, allowed, ARRAY_SIZE(allowed)) || !below(4)) {
			reads++;
		} else {
			value = below(2) ? before ^ 1ULL << below(64) : word();
			/* That changes, beside what Linux may change, what it may not. */
			if (is_in(number, partly, ARRAY_SIZE(partly)))
				value = before ^ (draw() | 1ULL << 62);
			done = !wrmsrq_safe(number, value);
			writes++;
			faults += !done;
			if (rdmsrq_safe(number, &after) == readable ||
			    is_breach(number, value, before, after, done)) {
				breaches++;
				first = first ?: number;
			}
		}
		put_cpu();
		if (i % STRETCH == 0)
			cond_resched();
	}
	return snprintf(result, size, "%llu read %llu written %llu faults %llu breaches %#llx\n",
			reads, writes, faults, breaches, first);
}

/* --- Ports --- */

#define ACCESS(INSTRUCTION)							\
	({									\
		asm volatile("1: " INSTRUCTION "\n"				\
			     "movl $0, %[fault]\n"				\
			     "2:\n"						\
			     _ASM_EXTABLE(1b, 2b)				\
			     : [fault] "+m" (fault), "+a" (value),		\
			       "+c" (repeat), "+D" (to), "+S" (from)		\
			     : "d" (port)					\
			     : "memory");					\
	})

static u8 buffer[64];

/* Reads or writes a port in one of many ways. True if that faults. */
static bool access_port(u16 port, bool write, u32 *read)
{
	u64 repeat = 1 + below(8);
	void *to = buffer, *from = buffer;
	u32 value = draw(), fault = 1;

	switch (below(6) + (write ? 6 : 0)) {
	case 0:
		ACCESS("inb %%dx, %%al");
		break;
	case 1:
		ACCESS("inw %%dx, %%ax");
		break;
	case 2:
		ACCESS("inl %%dx, %%eax");
		break;
	case 3:
		ACCESS("rep insb");
		break;
	case 4:
		ACCESS("rep insw");
		break;
	case 5:
		ACCESS("insl");
		break;
	case 6:
		ACCESS("outb %%al, %%dx");
		break;
	case 7:
		ACCESS("outw %%ax, %%dx");
		break;
	case 8:
		ACCESS("outl %%eax, %%dx");
		break;
	case 9:
		ACCESS("rep outsb");
		break;
	case 10:
		ACCESS("rep outsw");
		break;
	default:
		ACCESS("outsl");
		break;
	}
	*read = value;
	return fault;
}

/* A port of a UART on the ISA bus, or one right before. */
static bool is_uart(u16 port)
{
	return (port >= 0x2f0 && port < 0x300) || (port >= 0x3e0 && port < 0x400);
}

/*
 * Reads and writes ports that a cell has alone, and that of system-management interrupts. Others
 * are only read: writing them is Linux's own business. Those of PCI devices, of keyboard, clock and
 * serial lines are not read, since that would take from them what their drivers wait for; and QEMU
 * ends where a UART is read by words.
 */
static int ports(u64 count, u16 first, u16 last, u16 smi, char *result, size_t size)
{
	u64 faults = 0, reached = 0, i;

	for (i = 0; i < count; i++) {
		u32 what = below(4), value;
		u16 port;

		if (what < 2) {
			port = first + below(last - first + 1);
			if (access_port(port, below(2), &value))
				faults++;
			else
				reached++;
		} else if (what == 2) {
			access_port(smi - below(4), below(2), &value);
		} else {
			do {
				port = below(0x1000);
			} while (is_uart(port) || (port & 0xffe8) == 0x60 ||
				 (port >= smi - 3 && port <= smi));
			faults += access_port(port, false, &value);
		}
		if (i % STRETCH == 0)
			cond_resched();
	}
	return snprintf(result, size, "%llu faults %llu reached\n", faults, reached);
}

/* --- The channel --- */

/*
 * Whether crtos.ko keeps clocks there, twice a second. A realm that has ended leaves its channel
 * as it was, and Linux uses what comes behind the head.
 */
static bool is_in_use(const struct crtos_channel *channel)
{
	u32 before, sequence;
	int tries;

	if (copy_from_kernel_nofault(&before, &channel->time.sequence, sizeof(before)))
		return false;
	for (tries = 0; tries < 20; tries++) {
		msleep(100);
		if (copy_from_kernel_nofault(&sequence, &channel->time.sequence, sizeof(sequence)))
			return false;
		if (sequence != before)
			return true;
	}
	return false;
}

struct crtos_channel *attack_find_channel(void)
{
	u64 address, head[2];

	for (address = 0; address < MEMORY_END; address += BLOCK_BYTES) {
		if (!page_is_ram(PHYS_PFN(address)) ||
		    copy_from_kernel_nofault(head, __va(address), sizeof(head)))
			continue;
		if (head[0] == CRTOS_CHANNEL_MAGIC && (u32)head[1] == CRTOS_ABI_VERSION &&
		    is_in_use(__va(address)))
			return __va(address);
	}
	return NULL;
}

/* A word for the channel. */
static u64 channel_word(u64 old)
{
	switch (below(8)) {
	case 0:
		return old ^ 1ULL << below(64);
	case 1:
		return (old & ~0xffffffffULL) | below(10);
	case 2:
		return (old & 0xffffffff) | (u64)below(32) << 32;
	case 3:
		return 0x100000000 + (u64)below(0x20000) * PAGE_SIZE + below(2);
	case 4:
		return -below(600);
	default:
		return word();
	}
}

/*
 * Writes words all over the channel, half of which take back the word that was there, for
 * `microseconds` between two. It leaves out the slots of the process `spared`: to end, stop or
 * signal a process is Linux's right. The kernel's state is told to Linux only, which would give the
 * realm up.
 */
static int words(u64 count, u32 spared, unsigned int microseconds, char *result, size_t size)
{
	struct crtos_channel *channel = attack_find_channel();
	u64 written = 0, i;

	if (!channel)
		return -ENXIO;
	for (i = 0; i < count; i++) {
		u32 what = below(8), slot, offset;
		u64 *place, old;

		switch (what) {
		case 0 ... 1:
			offset = offsetof(struct crtos_channel, replies) +
				 below(sizeof(channel->replies) * 3 + 256) / 8 * 8;
			break;
		case 2:
			offset = offsetof(struct crtos_channel, time) +
				 below(offsetof(struct crtos_time_page, reserved)) / 8 * 8;
			break;
		case 3:
			offset = offsetof(struct crtos_channel, revocations) +
				 below(64 * sizeof(struct crtos_revocation)) / 8 * 8;
			break;
		case 4:
			offset = below(BLOCK_BYTES) / 8 * 8;
			break;
		default:
			offset = offsetof(struct crtos_channel, slots) +
				 below(48 * sizeof(struct crtos_slot)) / 8 * 8;
			break;
		}
		place = (void *)channel + offset;
		if (offset >= offsetof(struct crtos_channel, slots) &&
		    offset < offsetof(struct crtos_channel, log)) {
			slot = (offset - offsetof(struct crtos_channel, slots)) /
			       sizeof(struct crtos_slot);
			if (READ_ONCE(channel->slots[slot].pid) == spared)
				continue;
		}
		if (offset == offsetof(struct crtos_channel, kernel_state))
			continue;
		old = READ_ONCE(*place);
		WRITE_ONCE(*place, channel_word(old));
		written++;
		udelay(microseconds);
		if (below(2))
			WRITE_ONCE(*place, old);
		if (i % STRETCH == 0)
			cond_resched();
	}
	return snprintf(result, size, "%llu written\n", written);
}

/* A broadcast that asks for the realm's station: a frame that has something done. */
static const u8 question[] = {
	0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1,
	2, 0, 0, 0, 0, 1, 10, 9, 0, 1, 0, 0, 0, 0, 0, 0, 10, 9, 0, 2,
};

/*
 * Writes into the rings of the virtual Ethernet what has the kernel take and send frames, or is no
 * index and no length at all, and rings each time. Half of the words are as they were afterwards.
 */
static int rings(u64 count, u64 cell, char *result, size_t size)
{
	struct crtos_channel *channel = attack_find_channel();
	u64 rung = 0, i;

	if (!channel)
		return -ENXIO;
	for (i = 0; i < count; i++) {
		struct crtos_ethernet *ethernet = &channel->ethernet;
		struct crtos_ethernet_ring *ring =
			below(4) ? &ethernet->to_realm : &ethernet->to_linux;
		u32 number = below(CRTOS_ETHERNET_PLACES);
		u64 *length = &ring->lengths[number];
		u8 *bytes = &ring->bytes[number * CRTOS_ETHERNET_PLACE];
		u64 *place, value;

		switch (below(16)) {
		case 0:
			place = &ring->taken;
			value = READ_ONCE(*place) + below(200) - 100;
			break;
		case 1:
			place = &ring->wants_frames;
			value = word();
			break;
		case 2:
			place = below(2) ? &ring->cpu : &ring->wants_room;
			value = word();
			break;
		case 3:
			place = below(2) ? &ethernet->linux_up : &ethernet->realm_up;
			value = below(3);
			/* Any MTU, and more often one that lets long frames go. */
			if (!below(4)) {
				place = &ethernet->mtu;
				value = below(2) ? word() : CRTOS_ETHERNET_MOST_MTU;
			}
			break;
		case 4:
			place = &ring->written;
			value = word();
			break;
		case 5 ... 6:
			place = length;
			value = below(2) ? word() : below(CRTOS_ETHERNET_LONGEST + 100);
			break;
		case 7:
			memcpy(bytes, question, sizeof(question));
			place = length;
			value = below(2) ? sizeof(question) : CRTOS_ETHERNET_LONGEST - below(9000);
			break;
		case 8:
			place = (u64 *)bytes + below(8);
			value = word();
			break;
		default:
			place = &ring->written;
			value = READ_ONCE(*place) + below(70);
			break;
		}
		WRITE_ONCE(*place, value);
		rung += !crtos_hypercall(CRTOS_HC_DOORBELL, cell, 0, 0, 0);
		if (i % STRETCH == 0)
			cond_resched();
	}
	WRITE_ONCE(channel->ethernet.linux_up, 1);
	return snprintf(result, size, "%llu rung\n", rung);
}

int attack_at_random(const char *command, char *result, size_t size)
{
	u64 seed, count, a;
	unsigned int b, c, d;

	if (sscanf(command, "hypercalls %lli %lli %lli %u", &seed, &count, &a, &b) == 4) {
		sow(seed);
		return hypercalls(count, a, b, result, size);
	}
	if (sscanf(command, "registers %lli %lli", &seed, &count) == 2) {
		sow(seed);
		return registers(count, result, size);
	}
	if (sscanf(command, "ports %lli %lli %i %i %i", &seed, &count, &b, &c, &d) == 5) {
		if (b > c || c > 0xffff || d > 0xffff)
			return -EINVAL;
		sow(seed);
		return ports(count, b, c, d, result, size);
	}
	if (sscanf(command, "words %lli %lli %u %u", &seed, &count, &b, &c) == 4) {
		sow(seed);
		return words(count, b, c, result, size);
	}
	if (sscanf(command, "rings %lli %lli %lli", &seed, &count, &a) == 3) {
		sow(seed);
		return rings(count, a, result, size);
	}
	return -EINVAL;
}
