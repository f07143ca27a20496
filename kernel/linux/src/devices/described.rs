// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices that Linux describes ([`Description`](crtos_channel::Description)), which have I/O ports
//! and a line, and no PCI function of their own that the realm sees. They come and go while the
//! realm runs, by the thread alone that has functions come and go.
//!
//! One that a program uses stays while Linux asks for it. One that the realm has lost is gone at
//! once: its driver tells programs what Linux would tell them of a device that was pulled.

use alloc::{sync::Arc, vec::Vec};

use crtos_abi::device::MAX_DEVICES;
use crtos_channel::{Channel, Had, Wanted};
use crtos_core::{
    devices::{Device, pci},
    info,
    mm::heap,
    task::Mutex,
    warn,
};

use super::{DRIVERS, pins, uio};

/// A device that a driver attends to.
pub trait Described: Send + Sync {
    /// Has programs find it no more, and ends attending to it; `false` if a program uses it, unless
    /// it is lost: then all is as before. May sleep for a bounded time.
    fn leave(&self, is_lost: bool) -> bool;

    /// The process ids of those who use it. May sleep.
    fn users(&self) -> Vec<u32>;

    /// Whether it has that line. Any context.
    fn has_line(&self, line: u32) -> bool;
}

/// A device, and what Linux said of it.
type Place = Mutex<Option<(Arc<dyn Described>, Wanted)>>;

/// The places of the channel.
static PLACES: [Place; MAX_DEVICES] = [const { Mutex::new(None) }; MAX_DEVICES];

/// Sees to it that those devices are there that Linux wants the realm to have, and no others, and
/// tells what came of it. Behind [`uio::look`], which tells of all places. May sleep.
pub fn look(channel: Channel) {
    let wanted = |index| channel.wanted_device(index).filter(|it| !it.description.is_none());
    // New devices may have the lines of old ones.
    PLACES.iter().enumerate().for_each(|(index, place)| leave(place, wanted(index)));
    for (index, place) in PLACES.iter().enumerate() {
        let wanted = wanted(index);
        come(place, wanted);
        let there = place.lock();
        let Some((device, has)) = &*there else { continue };
        let users = if wanted.is_none() { device.users() } else { Vec::new() };
        channel.tell_device(index, Some(Had { function: has.function, users: &users }));
    }
}

/// The device at a place goes, if it is there and Linux does not want it there: at once if the
/// realm has it no more, and otherwise when nobody uses it.
fn leave(place: &Place, wanted: Option<Wanted>) {
    let mut there = place.lock();
    let Some((device, has)) = &*there else { return };
    let is_lost = wanted.is_some_and(|wanted| wanted != *has) || !pci::is_platform(has.function);
    if !is_lost && wanted.is_some() || !device.leave(is_lost) {
        return;
    }
    let text = has.description.text().unwrap_or_default();
    let name = text.split(',').nth(1).unwrap_or_default();
    info!("{name}: {}", if is_lost { "lost" } else { "given back" });
    *there = None;
}

/// A device comes that Linux wants at a place, if nothing is there.
fn come(place: &Place, wanted: Option<Wanted>) {
    let Some(wanted) = wanted else { return };
    if place.lock().is_some() || !heap::has_reserve() {
        return;
    }
    let Some(text) = wanted.description.text() else { return };
    let has_line = |line| wanted.line.is_some_and(|has| has.number == line) && is_free(line);
    let Some((driver, device)) = Device::find(wanted.function, text, has_line) else {
        warn!("{text}: the realm has no such device");
        return;
    };
    let mut comes = DRIVERS.iter().filter_map(|one| one.described);
    let Some((_, come)) = comes.find(|(name, _)| *name == driver) else {
        warn!("{text}: there is no such driver");
        return;
    };
    if let Some(device) = come(device) {
        *place.lock() = Some((device, wanted));
    }
}

/// Whether no other device has that line, whatever Linux says.
fn is_free(line: u32) -> bool {
    !pins::has(line) && !uio::has_line(line) && !has_line(line)
}

/// Whether one of these devices has that line. Thread context; may sleep.
pub fn has_line(line: u32) -> bool {
    let has_it =
        |place: &Place| place.lock().as_ref().is_some_and(|(device, _)| device.has_line(line));
    PLACES.iter().any(has_it)
}
