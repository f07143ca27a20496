// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clocks. The kernel's own clock counts from its boot and never steps; all deadlines are in it.
//! Linux's clocks follow from what Linux stores in the channel, and go on when Linux does not.

use crate::arch::cpu;
use crate::mm::layout;
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};
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

/// Time of one of Linux's clocks; kernel time if there is no channel. If Linux stopped while it
/// wrote the time page, some of the page's numbers are from its next update. Any context.
pub fn linux(clock: Clock) -> Nanos {
    match page() {
        // SAFETY: the channel is mapped for ever, and nobody here reaches its time page but through
        // atomics.
        Some(page) => Nanos(unsafe { crtos_vdso::read(page, clock, cpu::tsc) }.time),
        None => now(),
    }
}

/// Time of one of Linux's clocks; `None` if that takes more than one look, or there is no channel.
/// Any context.
pub fn try_linux(clock: Clock) -> Option<Nanos> {
    // SAFETY: the channel is mapped for ever, and its time page is reached by atomics alone.
    let reading = unsafe { crtos_vdso::try_read(page()?, clock, cpu::tsc) };
    reading.is_consistent.then_some(Nanos(reading.time))
}

/// Nanoseconds between two moves of Linux's coarse clocks.
pub fn coarse_resolution() -> u64 {
    // SAFETY: the channel is mapped for ever, and its time page is reached by atomics alone.
    page().map_or(1, |page| u64::from(unsafe { crtos_vdso::tick(page) }))
}

/// How often one of Linux's clocks was set. Any context.
pub fn steps() -> u32 {
    // SAFETY: the field is aligned and mapped, and is read atomically.
    page().map_or(0, |page| unsafe { count(&raw const (*page).steps) })
}

/// How often CLOCK_REALTIME was set. Any context.
pub fn realtime_steps() -> u32 {
    // SAFETY: the field is aligned and mapped, and is read atomically.
    page().map_or(0, |page| unsafe { count(&raw const (*page).realtime_steps) })
}

/// What Linux stored there last, and before that what it counts.
unsafe fn count(field: *const u32) -> u32 {
    // SAFETY: the caller's contract.
    unsafe { AtomicU32::from_ptr(field.cast_mut()).load(Ordering::Acquire) }
}

/// The time page of the channel.
fn page() -> Option<*const TimePage> {
    // SAFETY: only the address is computed, inside the mapped channel.
    layout::channel().map(|channel| unsafe { &raw const (*channel.as_ptr()).time })
}

/// The kernel's time at which `clock` will show `time`; now if that has passed. Both clocks are
/// read at one moment, so whatever interrupts this, it is not early. Any context.
fn deadline(clock: Clock, time: Nanos) -> Nanos {
    let moment = Cell::new(0);
    let read_moment = || {
        moment.set(cpu::tsc());
        moment.get()
    };
    let shown = match page() {
        // SAFETY: the channel is mapped for ever, and its time page is reached by atomics alone.
        Some(page) => Nanos(unsafe { crtos_vdso::read(page, clock, read_moment) }.time),
        None => self::clock().time(read_moment()),
    };
    self::clock().time(moment.get()) + (time - shown)
}

/// When a wait ends, or a timer expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deadline {
    /// At a time of the kernel's clock.
    At(Nanos),
    /// When a clock that can be set shows a time.
    Shown(Clock, Nanos),
}

impl Deadline {
    /// When `clock` shows `time`. CLOCK_BOOTTIME jumps when Linux was suspended.
    pub fn of(clock: Clock, time: Nanos) -> Self {
        match clock {
            Clock::Realtime | Clock::Tai | Clock::Boottime => Self::Shown(clock, time),
            Clock::Monotonic | Clock::Raw => Self::At(deadline(clock, time)),
        }
    }

    /// The kernel's time of that, as Linux's clocks stand. Any context.
    pub fn time(self) -> Nanos {
        match self {
            Self::At(time) => time,
            Self::Shown(clock, time) => deadline(clock, time),
        }
    }

    /// Whether that can change.
    pub fn can_move(self) -> bool {
        matches!(self, Self::Shown(..))
    }
}

impl From<Nanos> for Deadline {
    fn from(time: Nanos) -> Self {
        Self::At(time)
    }
}
