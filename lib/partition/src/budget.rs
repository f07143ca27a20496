// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often Linux may interrupt a CPU of a cell by doorbells.
//!
//! Each doorbell costs that CPU an interrupt, whatever it is about. So there is one for each
//! [`INTERVAL_NS`] in the long run, and at most [`BURST`] at once: in `t` nanoseconds at most
//! [`BURST`] + `t` / [`INTERVAL_NS`]. One that comes too early is not lost: who rings waits.

use core::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds between doorbells in the long run. A CPU that makes one remote call after the other
/// is answered less often.
pub const INTERVAL_NS: u64 = 3_000;
/// Doorbells that may come at once.
pub const BURST: u64 = 8;

/// What is left for one CPU.
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

    /// Takes one doorbell at the tick `now`, where `interval` ticks are [`INTERVAL_NS`]; false if
    /// it is too early. Any number of CPUs at the same time; without waiting.
    #[inline]
    pub fn take(&self, now: u64, interval: u64) -> bool {
        let most = BURST * interval;
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

    #[test]
    fn what_was_not_used_is_there_again() {
        let budget = Budget::new();
        for start in [0, 800, 10_000] {
            let taken = (0..2 * BURST).filter(|_| budget.take(start, 100)).count();
            assert_eq!(taken as u64, BURST, "at {start}");
        }
        assert!(!budget.take(10_099, 100));
        assert!(budget.take(10_100, 100));
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
                if budget.take(now, interval) {
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
                budget.take(now, interval);
                prop_assert!(budget.take(now + interval, interval));
                now += interval;
            }
        }
    }
}
