// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks. The kernel's own clock counts from its boot and never steps; all deadlines are in it.
//! Linux's clocks follow from what Linux stores in the channel, and go on when Linux does not.

use crate::arch::cpu;
use crate::mm::layout;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use crtos_abi::channel::TimePage;
use crtos_sched::clock::{Conversion, TscClock};
use spin::Once;

pub use crtos_sched::Nanos;

/// Linux's clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// CLOCK_MONOTONIC.
    Monotonic,
    /// CLOCK_REALTIME.
    Realtime,
    /// CLOCK_BOOTTIME.
    Boottime,
}

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

/// Time of one of Linux's clocks; kernel time if there is no channel. Any context.
pub fn linux(clock: Clock) -> Nanos {
    match read_page(clock) {
        Some(conversion) => conversion.time(cpu::tsc()),
        None => now(),
    }
}

/// The kernel's time at which `clock` will show `time`; now if that has passed. It does not follow
/// later steps of CLOCK_REALTIME.
pub fn deadline(clock: Clock, time: Nanos) -> Nanos {
    now() + (time - linux(clock))
}

/// A consistent copy of the time page. Linux writes it a few times a second under a sequence lock;
/// if it never becomes consistent (Linux stopped while it wrote), the last look is used: some of
/// its numbers are from the next update.
fn read_page(clock: Clock) -> Option<Conversion> {
    const ATTEMPTS: u32 = 100;
    let page: *const TimePage = layout::channel().map(|channel| {
        // SAFETY: only the address is computed, inside the mapped channel.
        unsafe { &raw const (*channel.as_ptr()).time }
    })?;
    let mut conversion = None;
    for _ in 0..ATTEMPTS {
        // SAFETY: the page is mapped, aligned, and accessed atomically or volatile; its numbers are
        // allegations that `Conversion` takes in any combination.
        unsafe {
            let sequence = AtomicU32::from_ptr((&raw const (*page).sequence).cast_mut());
            let before = sequence.load(Ordering::Acquire);
            let base = match clock {
                Clock::Monotonic => (&raw const (*page).monotonic).read_volatile(),
                Clock::Realtime => (&raw const (*page).realtime).read_volatile(),
                Clock::Boottime => (&raw const (*page).boottime).read_volatile(),
            };
            conversion = Some(Conversion {
                tsc_base: (&raw const (*page).tsc_base).read_volatile(),
                base,
                mult: (&raw const (*page).mult).read_volatile(),
                shift: (&raw const (*page).shift).read_volatile(),
            });
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && sequence.load(Ordering::Relaxed) == before {
                break;
            }
        }
        core::hint::spin_loop();
    }
    conversion
}
