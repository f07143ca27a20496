// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts of devices: a few vectors, each with the driver that handles it, and the lines that
//! raise them.
//!
//! A device that interrupts too often is silenced and reported, so that it takes a bounded share of
//! the CPU: [`MOST`] handlers in [`PERIOD`].

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt::{self, Write as _};
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crtos_abi::channel::{DEVICE_VECTOR as FIRST, DEVICE_VECTORS as VECTORS, DeviceInterrupts};
use crtos_abi::hypercall::{HC_LINE_INTERRUPT, HV_BUSY};

use crate::arch::hypercall::call_device;
use crate::arch::interrupts::InService;
use crate::arch::percpu;
use crate::sections;
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

/// What a vector is for.
pub(crate) struct Entry {
    /// A device has it, or had it once.
    was_given: AtomicBool,
    name: SpinLock<Name>,
    /// What came from [`Box::into_raw`]; null if no device has it.
    handler: AtomicPtr<Arc<dyn Handler>>,
    /// How many CPUs are about to call a handler, or call it.
    calls: AtomicU32,
    /// Interrupts since the device has that name.
    total: AtomicU64,
    /// The tick with which the present period ends, and what came in it.
    until: AtomicU64,
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
            handler: AtomicPtr::new(ptr::null_mut()),
            calls: AtomicU32::new(0),
            total: AtomicU64::new(0),
            until: AtomicU64::new(0),
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

    /// Has `handler` be called from now on, and the one before not any more. Thread context.
    pub fn hand_to(&self, handler: Arc<dyn Handler>) {
        self.entry().replace(Box::into_raw(Box::new(handler)));
    }

    fn entry(&self) -> &'static Entry {
        &ENTRIES[usize::from(self.0 - FIRST)]
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
        rename(self.0, "");
        self.entry().replace(ptr::null_mut());
    }
}

/// Has `handler` be called for the interrupts of the device `name`. Returns its vector; `None` if
/// there is no further one, or memory runs low. Thread context.
pub fn register(name: &str, handler: Arc<dyn Handler>) -> Option<Vector> {
    if !heap::has_reserve() {
        return None;
    }
    let handler = Box::into_raw(Box::new(handler));
    let take = |entry: &Entry| {
        let (free, order) = (ptr::null_mut(), Ordering::SeqCst);
        entry.handler.compare_exchange(free, handler, order, order).is_ok()
    };
    let Some(place) = ENTRIES.iter().position(take) else {
        // SAFETY: it came from the box, and nobody has seen it.
        drop(unsafe { Box::from_raw(handler) });
        return None;
    };
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

/// What an interrupt with that vector is for, if a device has it or had it once.
#[inline(always)]
pub(crate) fn entry(vector: u8) -> Option<&'static Entry> {
    let entry = ENTRIES.get(usize::from(vector.checked_sub(FIRST)?))?;
    entry.was_given.load(Ordering::Relaxed).then_some(entry)
}

impl Entry {
    /// Puts what came from a box, or null, in the place of the handler. Thread context.
    fn replace(&self, handler: *mut Arc<dyn Handler>) {
        // Of those who look from now on, none finds the old one.
        let old = self.handler.swap(handler, Ordering::SeqCst);
        // Those who have found it are done soon, since a handler is bounded. Pairs with `handle`.
        while self.calls.load(Ordering::SeqCst) > 0 {
            core::hint::spin_loop();
        }
        if !old.is_null() {
            // SAFETY: whoever put it there made it of a box, and nobody has it any more.
            drop(unsafe { Box::from_raw(old) });
        }
    }

    /// Handles an interrupt of the device, or silences that. In the section that it has begun;
    /// interrupts off.
    #[inline(always)]
    pub(crate) fn handle(&self, service: InService) {
        // Whoever takes the handler away waits for those who have found it. Pairs with `replace`.
        self.calls.fetch_add(1, Ordering::SeqCst);
        // What came when the device was about to go is for nobody.
        // SAFETY: null, or it came from a box that is there until no call is counted any more.
        if let Some(handler) = unsafe { self.handler.load(Ordering::SeqCst).as_ref() } {
            self.call(handler.as_ref(), service);
        }
        self.calls.fetch_sub(1, Ordering::Release);
    }

    /// Calls the handler, or has it silence the device. Interrupts off.
    #[inline(always)]
    fn call(&self, handler: &dyn Handler, service: InService) {
        self.total.fetch_add(1, Ordering::Relaxed);
        if self.is_silent.load(Ordering::Relaxed) {
            return;
        }
        let now = sections::began();
        if now > self.until.load(Ordering::Relaxed) {
            self.begin_period(now);
        }
        match self.count.fetch_add(1, Ordering::Relaxed) < MOST {
            true => handler.interrupt(service),
            false => self.silence(handler),
        }
    }

    /// A period begins at tick `now`.
    #[cold]
    fn begin_period(&self, now: u64) {
        let until = now.saturating_add(time::clock().ticks(PERIOD).0);
        self.until.store(until, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
    }

    #[cold]
    fn silence(&self, handler: &dyn Handler) {
        if handler.silence() {
            self.is_silent.store(true, Ordering::Relaxed);
            let name = *self.name.lock();
            warn!("{name} interrupts too often, and is silenced");
        }
    }
}
