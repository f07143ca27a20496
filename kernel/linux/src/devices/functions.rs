// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions that the kernel drives, each by the driver that names its ids. All others are
//! driven by programs.
//!
//! Linux gives such a function as any other (`crtos device add`), and lists it with a file,
//! `/dev/uioN`. Who opens that file in the realm has an opening of the driver's making. The
//! function is in use while there is one, so `crtos device remove` is refused; and nobody maps its
//! registers.

use alloc::{boxed::Box, string::String, sync::Arc};

use crtos_core::devices::pci::Function;

use crate::{abi::Errno, files::character::Character};

/// A driver of PCI functions.
pub struct FunctionDriver {
    /// The ids of vendor and kind of those that it drives.
    pub ids: &'static [(u16, u16)],
    /// Begins to drive one; `None` if it cannot be used, which the driver logs. May sleep.
    pub start: fn(Function) -> Option<Arc<dyn Driven>>,
}

/// A function that a driver has.
///
/// Openings hold a reference, and nothing else does for long: the function is in use while there is
/// one besides the kernel's own. A timer or the handler of an interrupt has a weak one.
pub trait Driven: Send + Sync {
    /// Opens it, with flags of open(2), by the file `path`. May sleep.
    fn open(self: Arc<Self>, path: String, flags: u32) -> Result<Box<dyn Character>, Errno>;

    /// The realm gives the function back, or has lost it: the driver touches it no more when this
    /// returns, and openings that are left fail with EIO. May sleep for a bounded time.
    fn leave(&self);
}

/// All drivers of PCI functions.
const DRIVERS: &[FunctionDriver] = &[super::pci_testdev::DRIVER];

/// The driver of a function.
pub(super) fn driver_of(function: &Function) -> Option<&'static FunctionDriver> {
    let ids = function.ids();
    DRIVERS.iter().find(|driver| driver.ids.contains(&ids))
}
