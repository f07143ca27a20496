// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux's clocks: a sequence-locked line through the time stamp counter.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::block::{Block, word};

/// Tries to read while Linux writes.
const TRIES: usize = 64;

/// A line through the time stamp counter for each clock: a consistent copy of the time page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Counter at the base.
    pub tsc_base: u64,
    mult: u32,
    shift: u32,
    /// CLOCK_MONOTONIC at the base, nanoseconds.
    pub monotonic: u64,
    /// CLOCK_REALTIME at the base, nanoseconds since 1970.
    pub realtime: u64,
    /// CLOCK_BOOTTIME at the base, nanoseconds.
    pub boottime: u64,
    /// Seconds that International Atomic Time is ahead.
    pub tai_offset: u32,
}

impl Block {
    /// Copies the time page; `None` if Linux has not written it, writes it all the time, or wrote nonsense.
    pub fn clocks(&self) -> Option<Clocks> {
        for _ in 0..TRIES {
            let sequence = word!(self, AtomicU32, time.sequence).load(Ordering::Acquire);
            let clocks = Clocks {
                tsc_base: word!(self, AtomicU64, time.tsc_base).load(Ordering::Relaxed),
                mult: word!(self, AtomicU32, time.mult).load(Ordering::Relaxed),
                shift: word!(self, AtomicU32, time.shift).load(Ordering::Relaxed),
                monotonic: word!(self, AtomicU64, time.monotonic).load(Ordering::Relaxed),
                realtime: word!(self, AtomicU64, time.realtime).load(Ordering::Relaxed),
                boottime: word!(self, AtomicU64, time.boottime).load(Ordering::Relaxed),
                tai_offset: word!(self, AtomicU32, time.tai_offset).load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            let again = word!(self, AtomicU32, time.sequence).load(Ordering::Relaxed);
            if sequence == again && sequence % 2 == 0 {
                return ((1..=32).contains(&clocks.shift) && clocks.mult != 0).then_some(clocks);
            }
            core::hint::spin_loop();
        }
        None
    }
}

impl Clocks {
    /// Nanoseconds from the base to counter value `tsc`; 0 before the base.
    pub fn since_base(&self, tsc: u64) -> u64 {
        let ticks = u128::from(tsc.saturating_sub(self.tsc_base));
        u64::try_from((ticks * u128::from(self.mult)) >> self.shift).unwrap_or(u64::MAX)
    }
}
