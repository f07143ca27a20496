// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network cards: an interface that Linux drove is one of the realm. And the virtual Ethernet, a
//! card whose cable ends in Linux.
//!
//! What cards are there and what they do is in the crate `crtos-nic`, and what programs see of them
//! in [`crate::sockets`]. Here are their interrupts, and the threads that hand over what they
//! receive.
//!
//! The command line says what an interface was under Linux, by a word `device=net,…`
//! ([`Settings`]). Its PCI function comes as those of programs do, and is this driver's whenever
//! the realm has it. That of the virtual Ethernet names no function.
//!
//! | module | concept |
//! |---|---|
//! | [`bus`] | what a card is connected by |
//! | [`card`] | a card: its interrupts, its thread, sending |
//! | [`ethernet`] | the virtual Ethernet |
//! | [`place`] | where a card can be, with the vector of its interrupts |

mod bus;
mod card;
mod ethernet;
mod place;

use alloc::vec::Vec;

use crtos_abi::device::MAX_DEVICES;
use crtos_channel::{Channel, Had, Wanted};
use crtos_core::{devices, warn};
use crtos_nic::settings::Settings;
use spin::Once;

use super::Driver;
use crate::sockets::{self, net::interface};
use place::Place;

/// What the kernel needs to know of this driver.
pub const DRIVER: Driver = Driver { start, described: None, open: |_, _| None };

/// The interfaces that the command line names, each in its place.
static PLACES: Once<Vec<Place>> = Once::new();

fn places() -> &'static [Place] {
    PLACES.get().map_or(&[], Vec::as_slice)
}

fn start() -> bool {
    let mut places = Vec::new();
    let mut virtual_one = None;
    for word in devices::words_of("net") {
        let settings = Settings::parse(word).filter(|_| places.len() < interface::MOST);
        match settings.map(|settings| (settings.function, settings)) {
            Some((Some(function), settings)) => places.push(Place::new(function, settings)),
            Some((None, settings)) if virtual_one.is_none() => virtual_one = Some(settings),
            _ => warn!("{word}: does not describe a network interface, or there are too many"),
        }
    }
    if !places.is_empty() || virtual_one.is_some() {
        PLACES.call_once(|| places);
        sockets::packet::start();
    }
    if let Some(settings) = virtual_one {
        ethernet::start(&settings);
    }
    // No file of Linux's leads to them.
    false
}

/// Linux's doorbell has rung; says whether that has woken somebody. Interrupts off; bounded.
pub fn doorbell() -> bool {
    ethernet::doorbell()
}

/// Whether a function is this driver's, not a program's.
pub fn is_ours(function: u16) -> bool {
    places().iter().any(|place| place.function == function)
}

/// Sees to it that those interfaces are there whose functions Linux wants the realm to have, and
/// tells what came of it where there is one. Behind [`super::uio::look`], which tells of all
/// places. May sleep.
pub fn look(channel: Channel) {
    if places().is_empty() {
        return;
    }
    let wanted: Vec<Option<Wanted>> =
        (0..MAX_DEVICES).map(|index| channel.wanted_device(index)).collect();
    for place in places() {
        let function = place.function;
        let is_meant = |wanted: &Option<Wanted>| wanted.is_some_and(|it| it.function == function);
        let at = wanted.iter().position(is_meant);
        let meant = at.and_then(|at| wanted[at]);
        place.leave(meant);
        if let Some(meant) = meant {
            place.come(meant);
        }
        // Where Linux wants it no more, its place is the one where it was.
        let Some(at) = at.or_else(|| place.told()) else { continue };
        if !place.is_there() {
            place.tell(None);
            continue;
        }
        let is_wanted = wanted[at].is_some_and(|it| it.function == function);
        if wanted[at].is_some() && !is_wanted {
            continue;
        }
        place.tell(Some(at));
        let users = if is_wanted { Vec::new() } else { place.users() };
        channel.tell_device(at, Some(Had { function, users: &users }));
    }
}
