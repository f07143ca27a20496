// SPDX-License-Identifier: GPL-2.0-only
/*
 * Linux's clocks for the realm: the time page of the channel says how the time
 * stamp counter translates into them. Each update goes on where the last
 * translation stands and chooses the rate that meets Linux's clock at the next
 * one. The real-time kernel leads its own clocks by these rates. When one of
 * Linux's clocks is set, the page says so before the call that set it returns.
 */
#include <linux/irq_work.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/notifier.h>
#include <linux/pvclock_gtod.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <asm/msr.h>
#include <asm/tsc.h>

#include "crtos.h"
#include "hypercall.h"
#include "realm.h"

#define SHIFT		24

/*
 * Within this time of Linux's clock the rate makes up for the difference; beyond
 * it, the clock is set.
 */
#define MAX_SLEW_NS	(100 * NSEC_PER_USEC)

/* Shortest and longest time over which Linux's rate is measured. */
#define MIN_INTERVAL_NS	(NSEC_PER_SEC / 2)
#define MAX_INTERVAL_NS	(100ull * NSEC_PER_SEC)

static u32 nominal_mult(void)
{
	return div_u64((u64)NSEC_PER_MSEC << SHIFT, tsc_khz);
}

/* Nanoseconds from the last update to @tsc, at the rate @mult. */
static u64 elapsed(const struct crtos_clock *clock, u64 tsc, u32 mult)
{
	return mul_u64_u32_shr(tsc - clock->tsc, mult, SHIFT);
}

/* Linux's clocks at one value of the counter. */
struct moment {
	u64 tsc;
	u64 monotonic;
	u64 raw;
};

/* Reads counter and clocks together: of a few tries the one that took the shortest. */
static void read_moment(struct moment *moment)
{
	u64 before, between, after, monotonic, raw, best = U64_MAX;
	int i;

	for (i = 0; i < 3; i++) {
		before = rdtsc_ordered();
		monotonic = ktime_get_ns();
		between = rdtsc_ordered();
		raw = ktime_get_raw_ns();
		after = rdtsc_ordered();
		if (after - before >= best)
			continue;
		best = after - before;
		moment->tsc = before + (between - before) / 2;
		moment->monotonic = monotonic;
		/* Read a little later: brought back to the moment of the other clock. */
		moment->raw = raw - mul_u64_u32_shr(between + (after - between) / 2 - moment->tsc,
						    nominal_mult(), SHIFT);
	}
}

/* Protects the time page and the clocks that it follows from, also in hard interrupts. */
static DEFINE_RAW_SPINLOCK(page_lock);

/*
 * Writes the page; says whether one of the clocks was set. The caller holds page_lock. A
 * reader that saw any of this sees an odd or another sequence: contents() in lib/vdso.
 */
static bool publish(struct crtos_time_page *page, struct crtos_clock *clock)
{
	ktime_t monotonic = clock->monotonic.base;
	ktime_t realtime = ktime_mono_to_any(0, TK_OFFS_REAL);
	ktime_t boottime = ktime_mono_to_any(0, TK_OFFS_BOOT);
	ktime_t tai = ktime_mono_to_any(0, TK_OFFS_TAI);
	bool realtime_set = realtime != clock->realtime;
	bool set = realtime_set || boottime != clock->boottime || tai != clock->tai;
	u32 sequence = page->sequence | 1;

	clock->realtime = realtime;
	clock->boottime = boottime;
	clock->tai = tai;
	WRITE_ONCE(page->sequence, sequence);
	/* The odd sequence before the contents; pairs with the acquire fence of contents(). */
	smp_wmb();
	WRITE_ONCE(page->shift, SHIFT);
	WRITE_ONCE(page->mult, clock->monotonic.mult);
	WRITE_ONCE(page->raw_mult, clock->raw.mult);
	WRITE_ONCE(page->tsc_base, clock->tsc);
	WRITE_ONCE(page->monotonic, monotonic);
	WRITE_ONCE(page->realtime, ktime_add(monotonic, realtime));
	WRITE_ONCE(page->boottime, ktime_add(monotonic, boottime));
	WRITE_ONCE(page->tai, ktime_add(monotonic, tai));
	WRITE_ONCE(page->raw, clock->raw.base);
	WRITE_ONCE(page->tick, TICK_NSEC);
	/* After the contents; both pair with steps() of lib/vdso. */
	smp_store_release(&page->realtime_steps, page->realtime_steps + realtime_set);
	/* After realtime_steps: who sees this one sees that as well. */
	smp_store_release(&page->steps, page->steps + set);
	/* The contents before the even sequence; pairs with the acquire load of contents(). */
	smp_store_release(&page->sequence, sequence + 1);
	return set;
}

/**
 * crtos_clock_start() - store the first translation
 * @realm: the realm, whose channel is empty
 *
 * Context: Under realm_lock.
 */
void crtos_clock_start(struct crtos_realm *realm)
{
	struct crtos_clock *clock = &realm->clock;
	struct moment now;
	unsigned long flags;

	raw_spin_lock_irqsave(&page_lock, flags);
	read_moment(&now);
	clock->tsc = now.tsc;
	clock->monotonic.base = now.monotonic;
	clock->monotonic.of_linux = now.monotonic;
	clock->monotonic.mult = nominal_mult();
	clock->raw.base = now.raw;
	clock->raw.of_linux = now.raw;
	clock->raw.mult = nominal_mult();
	publish(&realm->channel->time, clock);
	raw_spin_unlock_irqrestore(&page_lock, flags);
}

/*
 * Begins a new piece of a line at @tsc, where Linux's clock shows @linux_time. It begins
 * where the line stands, so that the clock does not jump, and has Linux's rate since the
 * last update, corrected so that it meets Linux's clock a second later. If the two are
 * further apart than MAX_SLEW_NS, it begins at Linux's clock instead.
 */
static void bend(struct crtos_clock *clock, struct crtos_line *line, u64 tsc, u64 linux_time)
{
	u64 interval = linux_time - line->of_linux;
	u64 base = line->base + elapsed(clock, tsc, line->mult);
	s64 behind = linux_time - base;
	u32 mult = nominal_mult();

	if (interval < MAX_INTERVAL_NS)
		mult = div64_u64(interval << SHIFT, tsc - clock->tsc);
	if (abs(behind) <= MAX_SLEW_NS)
		mult += div_s64(behind * mult, NSEC_PER_SEC);
	else
		base = linux_time;
	line->of_linux = linux_time;
	line->base = base;
	line->mult = mult;
}

static void ring(struct crtos_realm *realm)
{
	crtos_hypercall(CRTOS_HC_DOORBELL, realm->cell->number, 0, 0, 0);
}

/**
 * crtos_clock_update() - bring the translation up to date
 * @realm: the realm, which is alive
 *
 * Rings if a clock was set.
 *
 * Context: Under realm_lock.
 */
void crtos_clock_update(struct crtos_realm *realm)
{
	struct crtos_clock *clock = &realm->clock;
	struct moment now;
	unsigned long flags;
	bool set;

	raw_spin_lock_irqsave(&page_lock, flags);
	read_moment(&now);
	if (now.monotonic - clock->monotonic.of_linux >= MIN_INTERVAL_NS) {
		bend(clock, &clock->monotonic, now.tsc, now.monotonic);
		bend(clock, &clock->raw, now.tsc, now.raw);
		clock->tsc = now.tsc;
	}
	set = publish(&realm->channel->time, clock);
	raw_spin_unlock_irqrestore(&page_lock, flags);
	if (set)
		ring(realm);
}

/**
 * crtos_clock_republish() - have the page show clocks that were set
 * @realm: the realm, which is alive
 *
 * Rings if one was.
 *
 * Context: Any, hard interrupts on PREEMPT_RT included.
 */
void crtos_clock_republish(struct crtos_realm *realm)
{
	unsigned long flags;
	bool set;

	raw_spin_lock_irqsave(&page_lock, flags);
	set = publish(&realm->channel->time, &realm->clock);
	raw_spin_unlock_irqrestore(&page_lock, flags);
	if (set)
		ring(realm);
}

static void clock_set(struct irq_work *work)
{
	crtos_realm_clock_set();
}

/* Runs in an interrupt of the CPU that set the clock, as soon as it takes one. */
static struct irq_work set_work = IRQ_WORK_INIT_HARD(clock_set);

/* Called with the clocks locked, at each tick: they cannot be read here. */
static int clock_changed(struct notifier_block *block, unsigned long was_set, void *timekeeper)
{
	if (was_set)
		irq_work_queue(&set_work);
	return NOTIFY_DONE;
}

static struct notifier_block clock_notifier = { .notifier_call = clock_changed };

/**
 * crtos_clock_init() - hear of clocks that are set
 *
 * Return: 0 or a negative error.
 */
int crtos_clock_init(void)
{
	return pvclock_gtod_register_notifier(&clock_notifier);
}

/**
 * crtos_clock_exit() - hear of them no more
 */
void crtos_clock_exit(void)
{
	pvclock_gtod_unregister_notifier(&clock_notifier);
	irq_work_sync(&set_work);
}
