// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time: a tick is a nanosecond, and passes with each look.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crtos_sched::clock::TscClock;
pub use crtos_sched::{Nanos, clock::Ticks};

static NOW: AtomicU64 = AtomicU64::new(1000);
static CLOCK: TscClock = TscClock::new(0, 1_000_000);

pub fn clock() -> &'static TscClock {
    &CLOCK
}

pub fn ticks() -> Ticks {
    Ticks(NOW.fetch_add(1, Relaxed))
}

pub fn now() -> Nanos {
    duration(ticks())
}

pub fn duration(ticks: Ticks) -> Nanos {
    CLOCK.duration(ticks)
}

/// The time, which does not pass by this.
pub fn shown() -> Nanos {
    Nanos(NOW.load(Relaxed))
}

/// Has time pass.
pub fn pass(time: Nanos) {
    NOW.fetch_add(time.0, Relaxed);
}
