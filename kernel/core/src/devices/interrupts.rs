// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts of devices: a few vectors, each with the driver that handles it.
//!
//! A device that interrupts too often is silenced and reported, so that it takes a bounded share of
//! the CPU: [`MOST`] handlers in [`PERIOD`].

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use spin::Once;

use crate::time::{self, Nanos};
use crate::{mm::heap, warn};

/// The first of the vectors.
pub const FIRST: u8 = 0xd0;
/// How many vectors there are.
pub const VECTORS: usize = 16;
/// Interrupts of one device that are handled in a [`PERIOD`] at most. A UART with FIFOs at 4 Mbaud
/// interrupts half as often.
pub const MOST: u32 = 1000;
/// What [`MOST`] is for.
pub const PERIOD: Nanos = Nanos::from_millis(10);

/// What handles the interrupts of a device.
pub trait Handler: Send + Sync {
    /// The device has interrupted. Interrupts off: bounded, no sleeping, no allocation; it may wake
    /// threads and arm timers.
    fn interrupt(&self);

    /// Has the device interrupt no more: it does so too often. Interrupts off.
    fn silence(&self);
}

struct Entry {
    name: &'static str,
    handler: Box<dyn Handler>,
    /// When the present period began, and what came since.
    since: AtomicU64,
    count: AtomicU32,
    is_silent: AtomicBool,
}

static ENTRIES: [Once<Entry>; VECTORS] = [const { Once::new() }; VECTORS];
/// Vectors that have been given away.
static GIVEN: AtomicU32 = AtomicU32::new(0);

/// Has `handler` be called for the interrupts of the device `name`, for ever. Returns its vector;
/// `None` if there is no further one, or memory runs low. Thread context.
pub fn register(name: &'static str, handler: Box<dyn Handler>) -> Option<u8> {
    if !heap::has_reserve() {
        return None;
    }
    let free = |given: u32| (given < VECTORS as u32).then_some(given + 1);
    let place = GIVEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free).ok()?;
    ENTRIES[place as usize].call_once(|| Entry {
        name,
        handler,
        since: AtomicU64::new(0),
        count: AtomicU32::new(0),
        is_silent: AtomicBool::new(false),
    });
    Some(FIRST + place as u8)
}

/// Whether the interrupt with that vector is a device's. The caller ends it, and has it
/// [`handle`]d. Interrupts off.
pub(crate) fn is_device(vector: u8) -> bool {
    entry(vector).is_some()
}

fn entry(vector: u8) -> Option<&'static Entry> {
    ENTRIES.get(usize::from(vector.checked_sub(FIRST)?))?.get()
}

/// Handles an interrupt of a device, or silences that. Interrupts off.
pub(crate) fn handle(vector: u8) {
    let Some(entry) = entry(vector) else { return };
    if entry.is_silent.load(Ordering::Relaxed) {
        return;
    }
    let now = time::now().0;
    if now.saturating_sub(entry.since.load(Ordering::Relaxed)) > PERIOD.0 {
        entry.since.store(now, Ordering::Relaxed);
        entry.count.store(0, Ordering::Relaxed);
    }
    if entry.count.fetch_add(1, Ordering::Relaxed) >= MOST {
        entry.is_silent.store(true, Ordering::Relaxed);
        entry.handler.silence();
        warn!("{} interrupts too often, and is silenced", entry.name);
        return;
    }
    entry.handler.interrupt();
}
