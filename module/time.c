// SPDX-License-Identifier: GPL-2.0-only
/*
 * The clocks that the realm reads without asking: the time page says how the
 * time stamp counter translates into Linux's clocks. Each update goes on where
 * the last translation stands and chooses the rate that meets Linux's clock at
 * the next one, so that the realm's monotonic clock never jumps back.
 */
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/timekeeping.h>
#include <asm/msr.h>
#include <asm/tsc.h>

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

static u64 translate(const struct crtos_clock *clock, u64 tsc)
{
	return clock->monotonic + mul_u64_u32_shr(tsc - clock->tsc, clock->mult, SHIFT);
}

/* Reads counter and clock together: of a few tries the one that took the shortest. */
static void read_pair(u64 *tsc, u64 *monotonic)
{
	u64 before, after, now, best = U64_MAX;
	int i;

	for (i = 0; i < 3; i++) {
		before = rdtsc_ordered();
		now = ktime_get_ns();
		after = rdtsc_ordered();
		if (after - before < best) {
			best = after - before;
			*tsc = before + best / 2;
			*monotonic = now;
		}
	}
}

static void publish(struct crtos_time_page *page, const struct crtos_clock *clock)
{
	ktime_t monotonic = clock->monotonic;
	ktime_t realtime = ktime_mono_to_any(monotonic, TK_OFFS_REAL);
	ktime_t tai = ktime_mono_to_any(monotonic, TK_OFFS_TAI);
	u32 sequence = page->sequence | 1;

	WRITE_ONCE(page->sequence, sequence);
	smp_wmb();
	WRITE_ONCE(page->shift, SHIFT);
	WRITE_ONCE(page->mult, clock->mult);
	WRITE_ONCE(page->tai_offset, div_s64(ktime_sub(tai, realtime), NSEC_PER_SEC));
	WRITE_ONCE(page->tsc_base, clock->tsc);
	WRITE_ONCE(page->monotonic, monotonic);
	WRITE_ONCE(page->realtime, realtime);
	WRITE_ONCE(page->boottime, ktime_mono_to_any(monotonic, TK_OFFS_BOOT));
	smp_store_release(&page->sequence, sequence + 1);
}

/* Linux's own rate since the last update, as a multiplier. */
static u32 measured_mult(const struct crtos_clock *clock, u64 tsc, u64 monotonic)
{
	return div64_u64((monotonic - clock->linux_monotonic) << SHIFT, tsc - clock->tsc);
}

/* The first translation. The caller holds the realm's lock. */
void crtos_clock_start(struct crtos_realm *realm)
{
	struct crtos_clock *clock = &realm->clock;

	read_pair(&clock->tsc, &clock->monotonic);
	clock->linux_monotonic = clock->monotonic;
	clock->mult = nominal_mult();
	publish(&realm->channel->time, clock);
}

/* Brings it up to date. The caller holds the realm's lock. */
void crtos_clock_update(struct crtos_realm *realm)
{
	struct crtos_clock *clock = &realm->clock;
	u64 tsc, monotonic, interval;
	s64 behind;
	u32 mult;

	read_pair(&tsc, &monotonic);
	interval = monotonic - clock->linux_monotonic;
	if (interval < MIN_INTERVAL_NS) {
		publish(&realm->channel->time, clock);
		return;
	}
	mult = interval < MAX_INTERVAL_NS ? measured_mult(clock, tsc, monotonic) : nominal_mult();
	behind = monotonic - translate(clock, tsc);
	clock->linux_monotonic = monotonic;
	if (abs(behind) <= MAX_SLEW_NS) {
		monotonic -= behind;
		mult += div_s64(behind * mult, NSEC_PER_SEC);
	}
	clock->tsc = tsc;
	clock->monotonic = monotonic;
	clock->mult = mult;
	publish(&realm->channel->time, clock);
}
