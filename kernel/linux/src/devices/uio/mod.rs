// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions and platform devices that programs drive, by Linux's interface for that (UIO): a
//! program maps the device's registers, and a read of `/dev/uioN` waits for its interrupts. What a
//! driver of the kernel knows ([`functions`](super::functions)) comes and goes here as well.
//!
//! Linux gives functions and wants them back while the realm runs ([`change`]). It has a file of
//! that name, and says what its number is; the hypervisor says which functions there are. A
//! function that a program has open or mapped stays, unless Linux takes it by force: then reads
//! fail with EIO, and a touch of its registers is a SIGBUS.
//!
//! | module | concept |
//! |---|---|
//! | [`place`] | a function: opening and closing it, what its interrupt does |
//! | [`change`] | functions come and go |
//! | [`mod@line`] | the interrupt of a platform device |
//! | [`configuration`] | the pin of a function is switched by Linux's file |
//! | [`mapping`] | the same registers by Linux's files, `resourceN` and `/dev/mem` |

mod change;
mod configuration;
mod line;
mod mapping;
mod place;

use alloc::boxed::Box;

use crtos_abi::device::MAX_DEVICES;
use spin::Once;

pub use change::{has_line, look};
pub use configuration::open as open_configuration;
pub use mapping::registers;

use super::Driver;
use crate::{abi::Errno, files::character::Character};
use place::Place;

/// What the kernel needs to know of this driver.
pub const DRIVER: Driver = Driver { start, described: None, open };

/// Where functions can be: the places of the channel. Each is made for its first function, and
/// stays.
static PLACES: [Once<Place>; MAX_DEVICES] = [const { Once::new() }; MAX_DEVICES];

/// There are none before Linux gives some.
fn start() -> bool {
    false
}

fn open(number: u64, flags: u32) -> Option<Result<Box<dyn Character>, Errno>> {
    PLACES.iter().filter_map(Once::get).find_map(|place| place.open(number, flags))
}
