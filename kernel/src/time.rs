// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks. The kernel's own clock counts from its boot and never steps; all deadlines are in it.
//! Linux's clocks follow from what Linux stores in the channel, and go on when Linux does not.

use crate::arch::cpu;
use crate::mm::layout;
use core::cell::Cell;
use crtos_abi::channel::TimePage;
use crtos_sched::clock::TscClock;
use spin::Once;

pub use crtos_sched::Nanos;
pub use crtos_vdso::Clock;

static CLOCK: Once<TscClock> = Once::new();

/// Starts the kernel's clock at 0. At boot.
pub fn set_up() {
    CLOCK.call_once(|| TscClock::new(cpu::tsc(), layout::boot_info().tsc_khz));
}

/// The conversion between ticks of the time stamp counter and kernel time.
pub fn clock() -> &'static TscClock {
    match CLOCK.get() {
        Some(clock) => clock,
        None => panic!("the clock is used before it was set up"),
    }
}

/// Time since the kernel's boot. Any context.
pub fn now() -> Nanos {
    clock().time(cpu::tsc())
}

/// Time of one of Linux's clocks; kernel time if there is no channel. If Linux stopped while it wrote the time page, some of the page's
/// numbers are from its next update. Any context.
pub fn linux(clock: Clock) -> Nanos {
    match page() {
        // SAFETY: the channel is mapped for ever, and nobody here reaches its time page but through atomics.
        Some(page) => Nanos(unsafe { crtos_vdso::read(page, clock, cpu::tsc) }.time),
        None => now(),
    }
}

/// Time of one of Linux's clocks; `None` if that takes more than one look, or there is no channel.
/// Any context.
pub fn try_linux(clock: Clock) -> Option<Nanos> {
    // SAFETY: as in `linux`.
    let reading = unsafe { crtos_vdso::try_read(page()?, clock, cpu::tsc) };
    reading.is_consistent.then_some(Nanos(reading.time))
}

/// Nanoseconds between two moves of Linux's coarse clocks.
pub fn coarse_resolution() -> u64 {
    // SAFETY: as in `linux`.
    page().map_or(1, |page| u64::from(unsafe { crtos_vdso::tick(page) }))
}

/// The time page of the channel.
fn page() -> Option<*const TimePage> {
    // SAFETY: only the address is computed, inside the mapped channel.
    layout::channel().map(|channel| unsafe { &raw const (*channel.as_ptr()).time })
}

/// The kernel's time at which `clock` will show `time`; now if that has passed. Both clocks are read at one moment, so whatever
/// interrupts this, it is not early. It does not follow later steps of CLOCK_REALTIME. Any context.
pub fn deadline(clock: Clock, time: Nanos) -> Nanos {
    let moment = Cell::new(0);
    let read_moment = || {
        moment.set(cpu::tsc());
        moment.get()
    };
    let shown = match page() {
        // SAFETY: as in `linux`.
        Some(page) => Nanos(unsafe { crtos_vdso::read(page, clock, read_moment) }.time),
        None => self::clock().time(read_moment()),
    };
    self::clock().time(moment.get()) + (time - shown)
}
