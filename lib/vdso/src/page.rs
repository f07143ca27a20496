// SPDX-License-Identifier: MIT OR Apache-2.0
//! All of a time page at once: read under its sequence lock, or written.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crtos_abi::channel::TimePage;

/// What a time page says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "the fields are those of the page")]
pub struct Contents {
    pub shift: u32,
    pub mult: u32,
    pub raw_mult: u32,
    pub tsc_base: u64,
    pub monotonic: u64,
    pub realtime: u64,
    pub boottime: u64,
    pub tai: u64,
    pub raw: u64,
    pub tick: u32,
    pub steps: u32,
    pub realtime_steps: u32,
}

/// The field as an atomic.
///
/// # Safety
/// It is aligned and mapped, and whoever else reaches it does so by atomics.
pub(crate) unsafe fn half<'a>(field: *const u32) -> &'a AtomicU32 {
    // SAFETY: the caller's contract.
    unsafe { AtomicU32::from_ptr(field.cast_mut()) }
}

/// The field as an atomic.
///
/// # Safety
/// As for [`half`].
pub(crate) unsafe fn word<'a>(field: *const u64) -> &'a AtomicU64 {
    // SAFETY: the caller's contract.
    unsafe { AtomicU64::from_ptr(field.cast_mut()) }
}

/// Returns what a page says; `None` if its owner writes it in each of so many looks.
///
/// # Safety
/// `page` is aligned, and mapped for reading during the call. Others may write to it meanwhile. Its
/// numbers may be any.
pub unsafe fn contents(page: *const TimePage, looks: u32) -> Option<Contents> {
    for _ in 0..looks {
        // SAFETY: the caller keeps the page mapped and aligned, so its fields are aligned as well.
        // Atomic loads do not write, and allow others to write meanwhile.
        let (before, contents, after) = unsafe {
            let half = |field| half(field).load(Ordering::Relaxed);
            let word = |field| word(field).load(Ordering::Relaxed);
            let sequence = self::half(&raw const (*page).sequence);
            let before = sequence.load(Ordering::Acquire);
            let contents = Contents {
                shift: half(&raw const (*page).shift),
                mult: half(&raw const (*page).mult),
                raw_mult: half(&raw const (*page).raw_mult),
                tsc_base: word(&raw const (*page).tsc_base),
                monotonic: word(&raw const (*page).monotonic),
                realtime: word(&raw const (*page).realtime),
                boottime: word(&raw const (*page).boottime),
                tai: word(&raw const (*page).tai),
                raw: word(&raw const (*page).raw),
                tick: half(&raw const (*page).tick),
                steps: half(&raw const (*page).steps),
                realtime_steps: half(&raw const (*page).realtime_steps),
            };
            fence(Ordering::Acquire);
            (before, contents, sequence.load(Ordering::Relaxed))
        };
        if before.is_multiple_of(2) && before == after {
            return Some(contents);
        }
        core::hint::spin_loop();
    }
    None
}

/// Writes what `make` returns. It is called after all readers see that the page changes: a reader
/// that finishes with what was there before has read the counter earlier than `make` does.
///
/// # Safety
/// `page` is aligned, and mapped for writing during the call. Nobody else writes to it meanwhile;
/// others read it by atomics alone.
pub unsafe fn write(page: *mut TimePage, make: impl FnOnce() -> Contents) {
    // SAFETY: the caller keeps the page mapped and aligned, so its fields are aligned as well.
    unsafe {
        let half = |field, value| half(field).store(value, Ordering::Relaxed);
        let word = |field, value| word(field).store(value, Ordering::Relaxed);
        let sequence = self::half(&raw const (*page).sequence);
        let number = sequence.load(Ordering::Relaxed);
        sequence.store(number.wrapping_add(1), Ordering::Relaxed);
        // The odd sequence before the contents, and visible to all before the counter is read.
        fence(Ordering::SeqCst);
        let contents = make();
        half(&raw const (*page).shift, contents.shift);
        half(&raw const (*page).mult, contents.mult);
        half(&raw const (*page).raw_mult, contents.raw_mult);
        word(&raw const (*page).tsc_base, contents.tsc_base);
        word(&raw const (*page).monotonic, contents.monotonic);
        word(&raw const (*page).realtime, contents.realtime);
        word(&raw const (*page).boottime, contents.boottime);
        word(&raw const (*page).tai, contents.tai);
        word(&raw const (*page).raw, contents.raw);
        half(&raw const (*page).tick, contents.tick);
        // After the contents, for those who look for steps alone. Who sees that a clock was set
        // sees that CLOCK_REALTIME was.
        let steps = self::half(&raw const (*page).realtime_steps);
        steps.store(contents.realtime_steps, Ordering::Release);
        self::half(&raw const (*page).steps).store(contents.steps, Ordering::Release);
        // The contents before the even sequence; pairs with the acquire load of readers.
        sequence.store(number.wrapping_add(2), Ordering::Release);
    }
}

/// Returns how often one of the clocks was set, and how often CLOCK_REALTIME was.
///
/// # Safety
/// `page` is aligned, and mapped for reading during the call.
pub unsafe fn steps(page: *const TimePage) -> (u32, u32) {
    // SAFETY: the caller keeps the page mapped and aligned; atomic loads do not write.
    unsafe {
        let all = half(&raw const (*page).steps).load(Ordering::Acquire);
        (all, half(&raw const (*page).realtime_steps).load(Ordering::Acquire))
    }
}
