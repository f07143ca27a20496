// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts of devices: a few vectors, each with the driver that handles it, and the lines that
//! raise them.
//!
//! A device that interrupts too often is silenced and reported, so that it takes a bounded share of
//! the CPU: [`MOST`] handlers in [`PERIOD`].

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crtos_abi::hypercall::HC_LINE_INTERRUPT;
use spin::Once;

use crate::arch::hypercall::call_device;
use crate::arch::percpu;
use crate::time::{self, Nanos};
use crate::{mm::heap, warn};

/// The first of the vectors.
pub const FIRST: u8 = 0xd0;
/// How many vectors there are.
pub const VECTORS: usize = 16;
/// Interrupts of one device that are handled in a [`PERIOD`] at most. A UART at 460,800 baud that
/// interrupts for each byte does so half as often.
pub const MOST: u32 = 1000;
/// What [`MOST`] is for.
pub const PERIOD: Nanos = Nanos::from_millis(10);

/// What handles the interrupts of a device.
pub trait Handler: Send + Sync {
    /// The device has interrupted. Interrupts off: bounded, no sleeping, no allocation; it may wake
    /// threads and arm timers, and [open windows](crate::arch::interrupts::window_in_timer). By an
    /// edge: the device interrupts anew when it has had nothing to tell in between.
    fn interrupt(&self);

    /// Has the device interrupt no more: it does so too often. `false` if that is not possible just
    /// now; then its next interrupt tries again. Interrupts off.
    fn silence(&self) -> bool;
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

/// Has line `line` of a device, as Linux counts them, interrupt this CPU by `vector`, or nobody if
/// there is none. False if the realm does not have the line, or the CPU cannot be interrupted by
/// it. What the line asks for meanwhile may be lost. Thread context; sleeps.
pub fn route(line: u32, vector: Option<u8>) -> bool {
    let vector = vector.unwrap_or(0).into();
    super::call_again(3000, Nanos::from_millis(1), || {
        let apic = percpu::this().apic_id().0;
        call_device(HC_LINE_INTERRUPT, [line.into(), vector, apic.into(), 0])
    }) == 0
}

/// The device with that vector may interrupt again, if it was silenced.
pub fn restart(vector: u8) {
    if let Some(entry) = entry(vector) {
        entry.count.store(0, Ordering::Relaxed);
        entry.is_silent.store(false, Ordering::Relaxed);
    }
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
        if entry.handler.silence() {
            entry.is_silent.store(true, Ordering::Relaxed);
            warn!("{} interrupts too often, and is silenced", entry.name);
        }
        return;
    }
    entry.handler.interrupt();
}
