// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drivers of the realm's devices.
//!
//! A driver is a folder, or a file. Its first file tells the kernel by a [`Driver`] how it starts,
//! and how a program opens one of its devices; what it needs of the kernel besides are ports and
//! vectors ([`crtos_core::devices`]) and the trait [`Character`]. A further driver is a line of
//! [`DRIVERS`]. One of PCI functions names their ids instead, and is a line of the list in
//! [`functions`]; devices that have none are [`described`] by Linux. Those whose devices have a
//! line share [`attendance`]: how such a device is attended to. PCI functions that programs drive
//! share lines by their [`pins`].
//!
//! | driver | devices |
//! |---|---|
//! | [`can`] | CAN interfaces: can0 and its successors |
//! | [`links`] | links: /dev/crtos-shm/NAME |
//! | [`net`] | network cards: eth1, for example; and the virtual Ethernet: crtos0 |
//! | [`pci_testdev`] | QEMU's pci-testdev: the smallest driver of a PCI function |
//! | [`ports`] | /dev/port, for the I/O ports of the realm's programs |
//! | [`resource`] | I/O ports of PCI functions that programs drive, by sysfs |
//! | [`serial`] | UARTs: /dev/ttyS0 and its successors |
//! | [`uio`] | PCI functions that programs drive: /dev/uio0 and its successors |
//! | [`vfio`] | PCI functions that transfer to and from programs' memory: /dev/vfio |

mod attendance;
mod can;
mod described;
mod functions;
mod links;
mod net;
mod pci_testdev;
mod pins;
mod ports;
mod resource;
mod serial;
mod uio;
mod users;
mod vfio;

pub use uio::registers;

use alloc::{boxed::Box, sync::Arc};

use crtos_channel::operation::DeviceFile;
use crtos_core::devices::Device;

use crate::{
    abi::Errno,
    files::character::{self, Character},
    process::housekeeper,
};
use described::Described;

/// What the kernel calls of a driver.
struct Driver {
    /// Gets it ready; says whether there are devices already. In the first thread, before there
    /// are programs. What comes later is announced by [`found`].
    start: fn() -> bool,
    /// If it is one of devices that Linux describes: its name there, and what begins to attend to
    /// such a device.
    described: Option<(&'static str, Come)>,
    /// Opens the device with a number (`st_rdev`); see [`character::Opener`].
    open: fn(number: u64, flags: u32) -> Option<Opened>,
}

/// An opening of a device, or why there is none.
type Opened = Result<Box<dyn Character>, Errno>;

/// Begins to attend to a device; `None` if it cannot be used, which the driver logs. By the thread
/// alone that has functions come and go; may sleep.
type Come = fn(Device<'_>) -> Option<Arc<dyn Described>>;

/// All drivers.
const DRIVERS: &[Driver] = &[
    can::DRIVER,
    links::DRIVER,
    net::DRIVER,
    ports::DRIVER,
    serial::DRIVER,
    uio::DRIVER,
    vfio::DRIVER,
];

/// Starts all drivers. Once, before there are programs.
pub fn start() {
    housekeeper::set_look_at_devices(|channel| {
        uio::look(channel);
        vfio::look(channel);
        net::look(channel);
        ports::look(channel);
        described::look(channel);
    });
    // Each driver starts, whatever the others found.
    let found = DRIVERS.iter().filter(|driver| (driver.start)()).count();
    if found > 0 {
        self::found();
    }
}

/// Linux's doorbell has rung, for whatever; says whether that has woken somebody. Interrupts off;
/// bounded.
pub fn doorbell() -> bool {
    net::doorbell()
}

/// A peer of a link has rung. Interrupts off; bounded.
pub fn link() {
    links::look();
}

/// There are devices of the realm. Any context of a thread.
fn found() {
    character::set_opener(open);
}

fn open(device: DeviceFile, flags: u32) -> Option<Opened> {
    match device {
        DeviceFile::Number(number) => {
            DRIVERS.iter().find_map(|driver| (driver.open)(number, flags))
        }
        DeviceFile::Ports { function, register } => Some(resource::open(function, register)),
        DeviceFile::Configuration(function) => uio::open_configuration(function),
    }
}
