// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions that programs drive by VFIO: as UIO, and the function transfers to and from memory
//! of the program, at addresses that the program chooses.
//!
//! Linux has the files: `/dev/vfio/vfio`, and `/dev/vfio/N` of a group, which is a function, or
//! several that the IOMMU does not tell from each other. A program puts the group into a container,
//! which says what memory its functions reach, and gets descriptors of these from the group.
//!
//! | module | concept |
//! |---|---|
//! | [`container`] | memory that functions reach |
//! | [`place`] | a function, and who has it open |
//! | [`group`] | the file of a group |
//! | [`function`] | the descriptor of a function: registers, configuration space |
//! | [`interrupts`] | who hears its interrupts |
//! | [`change`] | functions come and go |

mod change;
mod container;
mod function;
mod group;
mod interrupts;
mod place;

use alloc::boxed::Box;

use crtos_abi::device::MAX_DEVICES;
use crtos_vfio::abi::CONTAINER;
use spin::Once;

use super::Driver;
use crate::{abi::Errno, files::character::Character};
use place::Place;

pub use change::look;

/// What the kernel needs to know of this driver.
pub const DRIVER: Driver = Driver { start, described: None, open };

/// Where functions can be: the places of the channel. Each is made for its first function, and
/// stays.
static PLACES: [Once<Place>; MAX_DEVICES] = [const { Once::new() }; MAX_DEVICES];

fn places() -> impl Iterator<Item = &'static Place> {
    PLACES.iter().filter_map(Once::get)
}

/// There are none before Linux gives some.
fn start() -> bool {
    false
}

/// A container is the realm's while the realm has functions for one.
fn open(number: u64, _flags: u32) -> Option<Result<Box<dyn Character>, Errno>> {
    if number == CONTAINER && places().any(Place::is_there) {
        return Some(container::open());
    }
    group::open(places(), number)
}
