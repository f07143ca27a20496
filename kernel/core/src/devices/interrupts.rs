// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts of devices: a few vectors, each with the driver that handles it, and the lines that
//! raise them.
//!
//! A device that interrupts too often is silenced and reported, so that it takes a bounded share of
//! the CPU: [`MOST`] handlers in [`PERIOD`].

use alloc::sync::Arc;
use core::fmt::{self, Write as _};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crtos_abi::channel::{DEVICE_VECTOR as FIRST, DEVICE_VECTORS as VECTORS, DeviceInterrupts};
use crtos_abi::hypercall::{HC_LINE_INTERRUPT, HV_BUSY};

use crate::arch::hypercall::call_device;
use crate::arch::interrupts::InService;
use crate::arch::percpu;
use crate::sync::SpinLock;
use crate::time::{self, Nanos};
use crate::{
    mm::{heap, layout},
    warn,
};

/// Interrupts of one device that are handled in a [`PERIOD`] at most. A UART at 460,800 baud that
/// interrupts for each byte does so half as often.
pub const MOST: u32 = 1000;
/// What [`MOST`] is for.
pub const PERIOD: Nanos = Nanos::from_millis(10);

/// What handles the interrupts of a device.
pub trait Handler: Send + Sync {
    /// The device has interrupted. Interrupts off: bounded, no sleeping, no allocation; it may wake
    /// threads and arm timers, and [open windows](crate::arch::interrupts::window_in_timer). By an
    /// edge: the device interrupts anew when it has had nothing to tell in between. By a level: it
    /// interrupts again if it has something to tell when `service` ends. Other devices of the CPU
    /// wait for that, so it ends as soon as the device has nothing to tell.
    fn interrupt(&self, service: InService);

    /// Has the device interrupt no more: it does so too often. `false` if that is not possible just
    /// now; then its next interrupt tries again. Interrupts off.
    fn silence(&self) -> bool;
}

struct Entry {
    /// A device has it, or had it once.
    was_given: AtomicBool,
    name: SpinLock<Name>,
    /// `None` if no device has it.
    handler: SpinLock<Option<Arc<dyn Handler>>>,
    /// How many CPUs are about to call a handler, or call it.
    calls: AtomicU32,
    /// Interrupts since the device has that name.
    total: AtomicU64,
    /// When the present period began, and what came since.
    since: AtomicU64,
    count: AtomicU32,
    is_silent: AtomicBool,
}

/// The name of a device, of ASCII alone.
#[derive(Clone, Copy)]
struct Name {
    bytes: [u8; NAME],
    length: usize,
}

/// Bytes of a name.
const NAME: usize = size_of::<DeviceInterrupts>() - size_of::<u64>();

impl Name {
    const EMPTY: Self = Self { bytes: [0; NAME], length: 0 };

    fn new(name: impl fmt::Display) -> Self {
        let mut new = Self::EMPTY;
        // It does not fail: what finds no room is left out.
        let _ = write!(new, "{name}");
        new
    }
}

impl fmt::Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes[self.length..].iter_mut();
        let there = room.zip(text.bytes().filter(u8::is_ascii));
        self.length += there.map(|(place, byte)| *place = byte).count();
        Ok(())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(&self.bytes[..self.length]).unwrap_or("?"))
    }
}

impl Entry {
    const fn free() -> Self {
        Self {
            was_given: AtomicBool::new(false),
            name: SpinLock::new(Name::EMPTY),
            handler: SpinLock::new(None),
            calls: AtomicU32::new(0),
            total: AtomicU64::new(0),
            since: AtomicU64::new(0),
            count: AtomicU32::new(0),
            is_silent: AtomicBool::new(false),
        }
    }
}

static ENTRIES: [Entry; VECTORS] = [const { Entry::free() }; VECTORS];

/// The vector of a device, which is free again when this is dropped: in thread context, and when
/// nothing interrupts by it any more. The handler is not called any more then.
#[derive(Debug)]
pub struct Vector(u8);

impl Vector {
    /// Its number.
    pub fn number(&self) -> u8 {
        self.0
    }

    /// Has the device have it for ever. Returns its number.
    pub fn keep(self) -> u8 {
        let number = self.0;
        core::mem::forget(self);
        number
    }
}

impl Drop for Vector {
    fn drop(&mut self) {
        let entry = &ENTRIES[usize::from(self.0 - FIRST)];
        rename(self.0, "");
        // Of those who call it from now on, none finds it.
        let handler = entry.handler.lock().take();
        // Those who have found it are done soon, since a handler is bounded. Pairs with `handle`.
        while entry.calls.load(Ordering::Acquire) > 0 {
            core::hint::spin_loop();
        }
        drop(handler);
    }
}

/// Has `handler` be called for the interrupts of the device `name`. Returns its vector; `None` if
/// there is no further one, or memory runs low. Thread context.
pub fn register(name: &str, handler: Arc<dyn Handler>) -> Option<Vector> {
    if !heap::has_reserve() {
        return None;
    }
    let take = |entry: &Entry| {
        let mut place = entry.handler.lock();
        let is_free = place.is_none();
        if is_free {
            *place = Some(handler.clone());
        }
        is_free
    };
    let place = ENTRIES.iter().position(take)?;
    let vector = FIRST + place as u8;
    ENTRIES[place].was_given.store(true, Ordering::Relaxed);
    rename(vector, name);
    restart(vector);
    Some(Vector(vector))
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

/// Has line `line` interrupt nobody; `false` if the hypervisor does not do that just now. Any
/// context; one VM exit.
pub fn mask(line: u32) -> bool {
    let apic = percpu::this().apic_id().0;
    call_device(HC_LINE_INTERRUPT, [line.into(), 0, apic.into(), 0]) != HV_BUSY
}

/// The device with that vector may interrupt again, if it was silenced.
pub fn restart(vector: u8) {
    if let Some(entry) = entry(vector) {
        entry.count.store(0, Ordering::Relaxed);
        entry.is_silent.store(false, Ordering::Relaxed);
    }
}

/// The device with that vector is silenced if it interrupts once more before [`PERIOD`] is over: it
/// does so for nothing. Any context.
pub fn suspect(vector: u8) {
    if let Some(entry) = entry(vector) {
        entry.count.store(MOST, Ordering::Relaxed);
    }
}

/// The device with that vector is another one from now on, or none, which has an empty name. Thread
/// context.
pub fn rename(vector: u8, name: impl fmt::Display) {
    let Some(entry) = entry(vector) else { return };
    let name = Name::new(name);
    *entry.name.lock() = name;
    entry.total.store(0, Ordering::Relaxed);
}

/// Tells Linux of all devices and their interrupts. Thread context.
pub fn publish() {
    let Some(channel) = layout::channel() else { return };
    for (place, entry) in ENTRIES.iter().enumerate() {
        let name = entry.name.lock().bytes;
        let told = DeviceInterrupts { count: entry.total.load(Ordering::Relaxed), name };
        // SAFETY: the channel is mapped and these words are the kernel's; Linux only reads them.
        unsafe { (&raw mut (*channel.as_ptr()).interrupts[place]).write_volatile(told) };
    }
}

/// Whether the interrupt with that vector is a device's, to be [`handle`]d. Interrupts off.
pub(crate) fn is_device(vector: u8) -> bool {
    entry(vector).is_some()
}

fn entry(vector: u8) -> Option<&'static Entry> {
    let entry = ENTRIES.get(usize::from(vector.checked_sub(FIRST)?))?;
    entry.was_given.load(Ordering::Relaxed).then_some(entry)
}

/// Handles an interrupt of a device, or silences that. Interrupts off.
pub(crate) fn handle(vector: u8, service: InService) {
    let Some(entry) = entry(vector) else { return };
    entry.calls.fetch_add(1, Ordering::Relaxed);
    // What came when the device was about to go is for nobody.
    let handler = entry.handler.lock().clone();
    if let Some(handler) = &handler {
        entry.call(handler.as_ref(), service);
    }
    // Not the last one: who takes it away waits. Pairs with the drop of `Vector`.
    drop(handler);
    entry.calls.fetch_sub(1, Ordering::Release);
}

impl Entry {
    /// Calls the handler, or has it silence the device. Interrupts off.
    fn call(&self, handler: &dyn Handler, service: InService) {
        self.total.fetch_add(1, Ordering::Relaxed);
        if self.is_silent.load(Ordering::Relaxed) {
            return;
        }
        let now = time::now().0;
        if now.saturating_sub(self.since.load(Ordering::Relaxed)) > PERIOD.0 {
            self.since.store(now, Ordering::Relaxed);
            self.count.store(0, Ordering::Relaxed);
        }
        if self.count.fetch_add(1, Ordering::Relaxed) < MOST {
            return handler.interrupt(service);
        }
        if handler.silence() {
            self.is_silent.store(true, Ordering::Relaxed);
            let name = *self.name.lock();
            warn!("{name} interrupts too often, and is silenced");
        }
    }
}
