// SPDX-License-Identifier: MIT OR Apache-2.0
//! Network cards: an interface that Linux drove is one of the realm.
//!
//! What cards are there and what they do is in the crate `crtos-nic`, and what programs see of them
//! in [`crate::sockets`]. Here are their interrupts, and the threads that hand over what they
//! receive.
//!
//! The command line says what an interface was under Linux, by a word `device=net,…`
//! ([`Settings`]). Its PCI function comes as those of programs do, and is this driver's whenever
//! the realm has it.
//!
//! | module | concept |
//! |---|---|
//! | [`card`] | a card: its interrupts, its thread, sending |
//! | [`place`] | where a card can be, with the vector of its interrupts |

mod card;
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
    for word in devices::words_of("net") {
        match Settings::parse(word) {
            Some(settings) if places.len() < interface::MOST => {
                places.push(Place::new(settings));
            }
            _ => warn!("{word}: does not describe a network interface, or there are too many"),
        }
    }
    if !places.is_empty() {
        PLACES.call_once(|| places);
        sockets::packet::start();
    }
    // No file of Linux's leads to them.
    false
}

/// Whether a function is this driver's, not a program's.
pub fn is_ours(function: u16) -> bool {
    places().iter().any(|place| place.settings.function == function)
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
        let function = place.settings.function;
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
