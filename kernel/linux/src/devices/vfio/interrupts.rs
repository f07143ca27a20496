// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who hears the interrupts of a function: an eventfd for each message, or one for its pin. A
//! message has a vector of its own, on the CPU on which the program has said who hears it; a pin
//! has that of its line.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, Ordering};

use crtos_abi::UserAddr;
use crtos_vfio::{
    abi::INTERRUPTS,
    interrupts::{Action, Data, Kind, Request},
};
use spin::Once;

use crtos_core::{
    arch::interrupts::InService,
    devices::{
        interrupts::{self, Handler, Vector},
        pci,
    },
    sync::SpinLock,
};

use super::place::{Device, Place};
use crate::{
    abi::{Errno, SysResult},
    files::{self, event::Signaller},
    memory::user,
};

/// Most messages of a function that interrupt.
pub const MOST: usize = 8;

/// An eventfd, or nobody.
type Ear = SpinLock<Option<Signaller>>;

/// Who hears a function.
pub(super) struct Lines {
    /// By the number of the message; the first one hears the pin instead where that is on.
    messages: [Ear; MOST],
    /// Errors of PCI Express, of which the realm's kernel does not hear.
    errors: Ear,
    /// Linux wants the function back.
    request: Ear,
    /// By the number of the message; `None` if there was no further one.
    vectors: [Once<Option<u8>>; MOST],
    /// 1 + the function, while messages are on; else 0.
    function: AtomicU32,
}

/// What handles a message.
struct Line {
    place: &'static Place,
    number: usize,
}

impl Handler for Line {
    fn interrupt(&self, _: InService) {
        signal(&self.place.lines.messages[self.number]);
    }

    fn silence(&self) -> bool {
        let function = self.place.lines.function.load(Ordering::Relaxed).checked_sub(1);
        function.is_none_or(|function| pci::silence(function as u16, self.number as u32))
    }
}

/// Tells who hears it. Any context.
fn signal(ear: &Ear) {
    // The lock keeps the file, which is not to be closed in an interrupt.
    if let Some(event) = &*ear.lock() {
        event.signal();
    }
}

/// Somebody else, or nobody, hears it from now on. May sleep.
fn set(ear: &Ear, event: Option<Signaller>) {
    let before = core::mem::replace(&mut *ear.lock(), event);
    drop(before);
}

/// The eventfd of a descriptor, or nobody.
fn event(fd: i32) -> Result<Option<Signaller>, Errno> {
    let Ok(fd) = u32::try_from(fd) else { return Ok(None) };
    match files::find(fd.into()) {
        Some(file) => Signaller::new(file).map(Some),
        None if !files::table()?.is_remote(fd) => Err(Errno::EBADF),
        _ => Err(Errno::EINVAL),
    }
}

/// What follows a request: who is to hear the interrupts, or which are meant.
pub(super) enum Meant {
    None,
    Bools(Vec<u8>),
    Events(Vec<Option<Signaller>>),
}

/// Reads what follows a request, at an address. With no function locked: a file may end here.
pub(super) fn read(asked: &Request, address: UserAddr) -> Result<Meant, Errno> {
    let mut data = Vec::new();
    let length = asked.numbers.len() * asked.data.size();
    data.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
    data.resize(length, 0);
    user::read(address, &mut data)?;
    Ok(match asked.data {
        Data::None => Meant::None,
        Data::Bool => Meant::Bools(data),
        Data::Event => {
            let mut events = Vec::new();
            events.try_reserve_exact(asked.numbers.len()).map_err(|_| Errno::ENOMEM)?;
            for fd in data.as_chunks().0 {
                events.push(event(i32::from_le_bytes(*fd))?);
            }
            Meant::Events(events)
        }
    })
}

impl Lines {
    /// Nobody hears anything.
    pub const fn new() -> Self {
        Self {
            messages: [const { SpinLock::new(None) }; MOST],
            errors: SpinLock::new(None),
            request: SpinLock::new(None),
            vectors: [const { Once::new() }; MOST],
            function: AtomicU32::new(0),
        }
    }

    /// Nobody hears anything any more. May sleep.
    pub fn clear(&self) {
        self.function.store(0, Ordering::Relaxed);
        let single = [&self.errors, &self.request];
        self.messages.iter().chain(single).for_each(|ear| set(ear, None));
    }

    /// The function has interrupted by its pin. Any context.
    pub fn pin(&self) {
        signal(&self.messages[0]);
    }

    /// Linux wants the function back. Any context.
    pub fn request(&self) {
        signal(&self.request);
    }
}

/// How many interrupts of a kind a function has.
pub(super) fn count(device: &Device, kind: Kind) -> u32 {
    let (simple, table) = device.function.message_counts();
    match kind {
        Kind::Pin => device.pin.is_some().into(),
        Kind::Messages => simple,
        Kind::Table => table,
        Kind::Errors => device.function.is_express().into(),
        Kind::Request => 1,
    }
}

/// Whether Linux knows a kind for a function at all.
pub(super) fn is_known(device: &Device, index: u32) -> Option<Kind> {
    const _: () = assert!(INTERRUPTS == 5);
    Kind::of(index).filter(|kind| *kind != Kind::Errors || device.function.is_express())
}

/// Carries out a request. May sleep.
pub(super) fn carry_out(
    place: &'static Place,
    device: &mut Device,
    asked: &Request,
    meant: Meant,
) -> SysResult {
    match (asked.kind, asked.action) {
        (Kind::Pin, Action::Trigger) => pin(place, device, asked, meant),
        (Kind::Pin, Action::Mask) => switch_pin(device, asked, meant, false),
        (Kind::Pin, Action::Unmask) => switch_pin(device, asked, meant, true),
        (Kind::Messages | Kind::Table, Action::Trigger) => messages(place, device, asked, meant),
        (Kind::Errors, Action::Trigger) => single(&place.lines.errors, asked, meant),
        (Kind::Request, Action::Trigger) => single(&place.lines.request, asked, meant),
        _ => Err(Errno::ENOTTY),
    }
}

/// What is no interrupt of the function's. (`vfio_pci_set_ctx_trigger_single`.)
fn single(ear: &Ear, asked: &Request, meant: Meant) -> SysResult {
    match meant {
        Meant::None if asked.numbers.is_empty() => set(ear, None),
        Meant::None => signal(ear),
        Meant::Bools(bools) => match bools.first() {
            Some(0) => {}
            Some(_) => signal(ear),
            None => return Err(Errno::EINVAL),
        },
        Meant::Events(mut events) => set(ear, events.pop().ok_or(Errno::EINVAL)?),
    }
    Ok(0)
}

/// (`vfio_pci_set_intx_trigger`.)
fn pin(place: &'static Place, device: &mut Device, asked: &Request, meant: Meant) -> SysResult {
    let ear = &place.lines.messages[0];
    let kind = device.interrupts.map(|(kind, _)| kind);
    match (meant, kind) {
        (Meant::None, Some(Kind::Pin)) if asked.numbers.is_empty() => stop(place, device),
        (_, Some(kind)) if kind != Kind::Pin => return Err(Errno::EINVAL),
        _ if asked.numbers.is_empty() => return Err(Errno::EINVAL),
        (Meant::Events(mut events), on) => {
            set(ear, events.pop().flatten());
            if on.is_none() {
                device.interrupts = Some((Kind::Pin, 1));
                let pin = device.pin.as_ref().ok_or(Errno::EINVAL)?;
                pin.switch(!device.pin_off);
                if !pin.open() {
                    stop(place, device);
                    return Err(Errno::ENODEV);
                }
            }
        }
        (_, None) => return Err(Errno::EINVAL),
        (Meant::None, _) => signal(ear),
        (Meant::Bools(bools), _) => {
            if bools != [0] {
                signal(ear);
            }
        }
    }
    Ok(0)
}

/// (`vfio_pci_set_intx_mask`, `vfio_pci_set_intx_unmask`.)
fn switch_pin(device: &Device, asked: &Request, meant: Meant, on: bool) -> SysResult {
    let is_on = device.interrupts.is_some_and(|(kind, _)| kind == Kind::Pin);
    let pin = device.pin.as_ref().filter(|_| is_on && !asked.numbers.is_empty());
    let pin = pin.ok_or(Errno::EINVAL)?;
    let is_meant = match meant {
        Meant::None => true,
        Meant::Bools(bools) => bools != [0],
        // Nothing else unmasks it, so that nothing ends.
        Meant::Events(events) if on && matches!(events[..], [None]) => false,
        Meant::Events(_) => return Err(Errno::ENOTTY),
    };
    // What the command register says comes before that.
    if is_meant && !(on && device.pin_off) {
        pin.switch(on);
    }
    Ok(0)
}

/// The program has written to the command register whether the pin is off.
pub(super) fn set_pin_off(device: &mut Device, off: bool) {
    if device.pin_off == off {
        return;
    }
    device.pin_off = off;
    if let Some((Kind::Pin, _)) = device.interrupts
        && let Some(pin) = &device.pin
    {
        pin.switch(!off);
    }
}

/// (`vfio_pci_set_msi_trigger`.)
fn messages(
    place: &'static Place,
    device: &mut Device,
    asked: &Request,
    meant: Meant,
) -> SysResult {
    let on = device.interrupts;
    let numbers = asked.numbers.start as usize..asked.numbers.end as usize;
    if on.is_some_and(|(kind, count)| kind != asked.kind || asked.numbers.end > count) {
        return Err(Errno::EINVAL);
    }
    match (meant, on) {
        (Meant::None, Some(_)) if numbers.is_empty() => stop(place, device),
        (Meant::None, Some(_)) => place.lines.messages[numbers].iter().for_each(signal),
        (Meant::Bools(bools), Some(_)) => {
            let both = place.lines.messages[numbers].iter().zip(bools);
            both.filter(|(_, meant)| *meant != 0).for_each(|(ear, _)| signal(ear));
        }
        (Meant::Events(events), _) if numbers.end > 0 => {
            let count = on.map_or(numbers.end, |(_, count)| count as usize);
            // As many as there are, which Linux says as well.
            let there = vectors(place, count);
            if there < count {
                return if there > 0 { Ok(there as u64) } else { Err(Errno::ENOSPC) };
            }
            for (number, event) in numbers.zip(events) {
                set(&place.lines.messages[number], event);
            }
            device.interrupts = Some((asked.kind, count as u32));
            return start(place, device, count).inspect_err(|_| stop(place, device));
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// How many of the first `count` messages have a vector.
fn vectors(place: &'static Place, count: usize) -> usize {
    let has = |number: usize| {
        let name = "a message of a PCI function";
        let handler = || Arc::new(Line { place, number });
        let vector = || interrupts::register(name, handler()).map(Vector::keep);
        place.lines.vectors[number].call_once(vector).is_some()
    };
    (0..count.min(MOST)).take_while(|&number| has(number)).count()
}

/// Has those messages interrupt that somebody hears.
fn start(place: &Place, device: &mut Device, count: usize) -> SysResult {
    let mut used = [None; MOST];
    let lines = &place.lines;
    for (number, vector) in used[..count].iter_mut().enumerate() {
        if lines.messages[number].lock().is_some() {
            *vector = lines.vectors[number].get().copied().flatten();
            vector.iter().for_each(|&vector| interrupts::restart(vector));
        }
    }
    lines.function.store(1 + u32::from(device.function.number()), Ordering::Relaxed);
    if device.function.listen(&used[..count]) { Ok(0) } else { Err(Errno::ENODEV) }
}

/// Switches its messages, or its pin, off. May sleep.
pub(super) fn stop(place: &Place, device: &mut Device) {
    match (device.interrupts, &device.pin) {
        (Some((Kind::Pin, _)), Some(pin)) => pin.close(),
        _ => device.function.mute(MOST as u32),
    }
    place.lines.function.store(0, Ordering::Relaxed);
    device.interrupts = None;
    place.lines.messages.iter().for_each(|ear| set(ear, None));
}
