// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often a CPU may be interrupted by doorbells: one of a cell by Linux, one of Linux by a cell.
//!
//! Each doorbell costs that CPU an interrupt, whatever it is about. So a [`Rate`] bounds them. One
//! that comes too early is not lost: who rings waits.

use core::sync::atomic::{AtomicU64, Ordering};

/// How many doorbells there may be: in `t` nanoseconds at most `burst` + `t` / `interval_ns`.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Nanoseconds between doorbells in the long run.
    pub interval_ns: u64,
    /// Doorbells that may come at once.
    pub burst: u64,
}

/// Those of Linux for one CPU of a cell. A CPU that makes one remote call after the other is
/// answered less often.
pub const FOR_CELL: Rate = Rate { interval_ns: 3_000, burst: 8 };
/// Those of one cell for one CPU of Linux. A handler takes about half of the interval. A program
/// that makes one remote call after the other rings less often; the burst is for several.
pub const FOR_LINUX: Rate = Rate { interval_ns: 4_000, burst: 16 };

impl Rate {
    /// Returns it in ticks of a counter of `khz`.
    #[inline]
    pub const fn in_ticks(self, khz: u32) -> Ticks {
        Ticks { interval: self.interval_ns * khz as u64 / 1_000_000, burst: self.burst }
    }
}

/// A [`Rate`] in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    interval: u64,
    burst: u64,
}

/// What is left of a rate for one CPU.
pub struct Budget {
    /// The tick at which all of it would be there again.
    full_at: AtomicU64,
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

impl Budget {
    /// All of it.
    pub const fn new() -> Self {
        Self { full_at: AtomicU64::new(0) }
    }

    /// Takes one doorbell at the tick `now`; false if it is too early. Any number of CPUs at the
    /// same time; without waiting.
    #[inline]
    pub fn take(&self, now: u64, rate: Ticks) -> bool {
        let Ticks { interval, burst } = rate;
        let most = burst * interval;
        let next = |full_at: u64| {
            let after = full_at.max(now) + interval;
            (after - now <= most).then_some(after)
        };
        self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BURST: u64 = 8;

    const fn every(interval: u64) -> Ticks {
        Ticks { interval, burst: BURST }
    }

    #[test]
    fn a_rate_in_ticks() {
        let Ticks { interval, burst } = FOR_LINUX.in_ticks(2_500_000);
        assert_eq!((interval, burst), (10_000, FOR_LINUX.burst));
    }

    #[test]
    fn what_was_not_used_is_there_again() {
        let budget = Budget::new();
        for start in [0, 800, 10_000] {
            let taken = (0..2 * BURST).filter(|_| budget.take(start, every(100))).count();
            assert_eq!(taken as u64, BURST, "at {start}");
        }
        assert!(!budget.take(10_099, every(100)));
        assert!(budget.take(10_100, every(100)));
    }

    proptest! {
        /// Whoever rings whenever, no span of time has more than its budget.
        #[test]
        fn no_span_has_more(
            pauses in prop::collection::vec(prop_oneof![4 => 0..3_u64, 1 => 0..2_000_u64], 1..300),
            interval in 1..500_u64,
        ) {
            let budget = Budget::new();
            let mut now = 0;
            let mut taken = Vec::new();
            for pause in pauses {
                now += pause;
                if budget.take(now, every(interval)) {
                    taken.push(now);
                }
            }
            for (index, first) in taken.iter().enumerate() {
                for (count, last) in taken[index..].iter().enumerate() {
                    prop_assert!((count as u64) < BURST + (last - first) / interval);
                }
            }
        }

        /// Who waits long enough gets one.
        #[test]
        fn nobody_waits_for_longer_than_an_interval(
            rings in prop::collection::vec(0..50_u64, 1..100),
            interval in 1..500_u64,
        ) {
            let budget = Budget::new();
            let mut now = 0;
            for pause in rings {
                now += pause;
                budget.take(now, every(interval));
                prop_assert!(budget.take(now + interval, every(interval)));
                now += interval;
            }
        }
    }
}
