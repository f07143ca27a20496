// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clocks of programs from the time page. The kernel's system calls and the vDSO use the same
//! reading, so that the two agree.
//!
//! The kernel writes the page a few times a second, under a sequence lock. A reader does not wait
//! for ever: after a bounded number of looks it returns the last one, marked as inconsistent.
#![no_std]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crtos_abi::channel::TimePage;

mod page;

pub use page::{Contents, contents, steps, write};

/// One of the clocks of programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// CLOCK_MONOTONIC.
    Monotonic,
    /// CLOCK_REALTIME.
    Realtime,
    /// CLOCK_BOOTTIME.
    Boottime,
    /// CLOCK_TAI.
    Tai,
    /// CLOCK_MONOTONIC_RAW.
    Raw,
}

impl Clock {
    /// Returns the clock with a number of clock_gettime(2); `None` for clocks that count processor
    /// time or can wake the machine. The coarse clocks show the time as exactly as the others.
    #[inline(always)]
    pub fn from_number(number: u32) -> Option<Clock> {
        Some(match number {
            0 | 5 => Clock::Realtime,
            1 | 6 => Clock::Monotonic,
            4 => Clock::Raw,
            7 => Clock::Boottime,
            11 => Clock::Tai,
            _ => return None,
        })
    }

    /// Says whether the number is that of a coarse clock, which Linux moves at its ticks alone.
    #[inline(always)]
    pub fn is_coarse(number: u32) -> bool {
        matches!(number, 5 | 6)
    }
}

/// A reading of a clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// The clock's time in nanoseconds.
    pub time: u64,
    /// Nobody wrote meanwhile. Otherwise some of the numbers may be those of the next
    /// update.
    pub is_consistent: bool,
}

/// The most looks of one reading. An update takes about 60 instructions.
const TRIES: u32 = 64;

/// Reads `clock` at the moment in which `tsc` reads the time stamp counter. At most `TRIES`
/// looks; any context.
///
/// # Safety
/// `page` is aligned, and mapped for reading during the call. Others may write to it meanwhile. Its
/// numbers may be any.
#[inline(always)]
pub unsafe fn read(page: *const TimePage, clock: Clock, tsc: impl Fn() -> u64) -> Reading {
    // SAFETY: the caller keeps `page` mapped, which is all that `look` needs.
    let reading = unsafe { look(page, clock, &tsc) };
    // SAFETY: the caller keeps `page` mapped, which is all that `look_again` needs.
    if reading.is_consistent { reading } else { unsafe { look_again(page, clock, &tsc) } }
}

/// Reads `clock` like [`read`], with a single look.
///
/// # Safety
/// `page` is aligned, and mapped for reading during the call.
#[inline(always)]
pub unsafe fn try_read(page: *const TimePage, clock: Clock, tsc: impl Fn() -> u64) -> Reading {
    // SAFETY: the caller keeps `page` mapped, which is all that `look` needs.
    unsafe { look(page, clock, &tsc) }
}

/// Looks up to `TRIES` - 1 times more.
///
/// # Safety
/// `page` is aligned, and mapped for reading during the call.
#[cold]
#[inline(never)]
unsafe fn look_again(page: *const TimePage, clock: Clock, tsc: &impl Fn() -> u64) -> Reading {
    let mut tries = 1;
    loop {
        core::hint::spin_loop();
        // SAFETY: the caller keeps `page` mapped, which is all that `look` needs.
        let reading = unsafe { look(page, clock, tsc) };
        tries += 1;
        if reading.is_consistent || tries == TRIES {
            return reading;
        }
    }
}

/// Looks at the page once.
///
/// # Safety
/// `page` is aligned, and mapped for reading during the call.
#[inline(always)]
unsafe fn look(page: *const TimePage, clock: Clock, tsc: &impl Fn() -> u64) -> Reading {
    // SAFETY: the caller keeps the page mapped and aligned, so its fields are aligned as well;
    // atomic loads do not write, and allow others to write meanwhile.
    unsafe {
        let sequence = AtomicU32::from_ptr((&raw const (*page).sequence).cast_mut());
        let half =
            |field: *const u32| AtomicU32::from_ptr(field.cast_mut()).load(Ordering::Relaxed);
        let word =
            |field: *const u64| AtomicU64::from_ptr(field.cast_mut()).load(Ordering::Relaxed);
        let base = match clock {
            Clock::Monotonic => &raw const (*page).monotonic,
            Clock::Realtime => &raw const (*page).realtime,
            Clock::Boottime => &raw const (*page).boottime,
            Clock::Tai => &raw const (*page).tai,
            Clock::Raw => &raw const (*page).raw,
        };
        let mult = match clock {
            Clock::Raw => &raw const (*page).raw_mult,
            _ => &raw const (*page).mult,
        };
        let before = sequence.load(Ordering::Acquire);
        // A counter that is a little behind the one that wrote the base has not moved.
        let ticks = tsc().saturating_sub(word(&raw const (*page).tsc_base));
        let elapsed = u128::from(ticks) * u128::from(half(mult));
        let elapsed = (elapsed >> (half(&raw const (*page).shift) & 63)) as u64;
        let time = word(base).wrapping_add(elapsed);
        fence(Ordering::Acquire);
        let is_consistent = before & 1 == 0 && sequence.load(Ordering::Relaxed) == before;
        Reading { time, is_consistent }
    }
}

/// Returns the nanoseconds between two moves of Linux's coarse clocks.
///
/// # Safety
/// `page` is aligned, and mapped for reading during the call.
#[inline(always)]
pub unsafe fn tick(page: *const TimePage) -> u32 {
    // SAFETY: the caller keeps the page mapped and aligned; an atomic load does not write.
    unsafe { AtomicU32::from_ptr((&raw const (*page).tick).cast_mut()).load(Ordering::Relaxed) }
}
