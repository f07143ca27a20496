// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time by the time stamp counter.

use core::arch::x86_64::{_mm_lfence, _rdtsc};

use crate::boot;

/// The time stamp counter, not before what precedes it is done.
pub fn tsc() -> u64 {
    // SAFETY: Present on every processor that runs cells.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Ticks of the time stamp counter in `nanos`.
pub fn ticks(nanos: u64) -> u64 {
    (u128::from(nanos) * u128::from(boot::info().tsc_khz) / 1_000_000) as u64
}

/// Nanoseconds in `ticks` of the time stamp counter.
pub fn nanos(ticks: u64) -> u64 {
    (u128::from(ticks) * 1_000_000 / u128::from(boot::info().tsc_khz.max(1))) as u64
}
