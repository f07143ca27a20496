// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of the realm: which there are, and what drivers reach them by.
//!
//! Linux describes a device that has no PCI function of its own by a text
//! ([`WantedDevice`](crtos_abi::channel::WantedDevice)): the driver that knows it, the name by
//! which programs do, the line on which it interrupts, and what the driver wants to know besides.
//! Which I/O ports it has, the hypervisor tells: those are the realm's alone. The command line of
//! the cell has a word `device=DRIVER,…` for each interface of a network card.
//!
//! | module | concept |
//! |---|---|
//! | [`ports`] | I/O ports of a device |
//! | [`interrupts`] | vectors of devices |
//! | [`dma`] | memory that functions reach |
//! | [`links`] | memory that the realm shares with Linux and cells |
//! | [`pci`] | PCI functions that Linux gives the realm while it runs |

pub mod dma;
pub mod interrupts;
pub mod links;
pub mod pci;
pub mod ports;

use crtos_abi::hypercall::HV_BUSY;

use crate::mm::layout;
use crate::task;
use crate::time::{self, Nanos};
use ports::IoPorts;

/// What a word of the command line begins with that names a device.
pub(crate) const WORD: &[u8] = b"device=";

/// A device of the realm that Linux has described.
pub struct Device<'a> {
    /// The name by which programs know it.
    pub name: &'a str,
    /// Its I/O ports.
    pub ports: IoPorts,
    /// The second range of them, if it has one.
    pub further_ports: Option<IoPorts>,
    /// The line on which it interrupts, as Linux counts them.
    pub line: u32,
    /// The realm has that line for it.
    pub has_line: bool,
    /// What its driver wants to know besides.
    pub more: &'a str,
}

impl<'a> Device<'a> {
    /// The device that `text` describes, and the driver that knows it, if the realm has ports by
    /// that number. `has_line` says of a line whether the realm has it for this device. Thread
    /// context; may sleep.
    pub fn find(
        number: u16,
        text: &'a str,
        has_line: impl FnOnce(u32) -> bool,
    ) -> Option<(&'a str, Self)> {
        let mut fields = text.splitn(5, ',');
        let (driver, name, _) = (fields.next()?, fields.next()?, fields.next()?);
        let line = fields.next()?.parse().ok()?;
        let has_line = has_line(line);
        let [ports, further_ports] = pci::ports_of_platform(number)?;
        let more = fields.next().unwrap_or_default();
        Some((driver, Self { name, ports: ports?, further_ports, line, has_line, more }))
    }
}

/// Makes a call of a cell by `call`, which the hypervisor refuses while Linux makes one: then
/// the thread sleeps for `pause`, and tries again, so many times at most. Thread context.
pub(crate) fn call_again(tries: u32, pause: Nanos, mut call: impl FnMut() -> i64) -> i64 {
    for _ in 0..tries {
        let result = call();
        if result != HV_BUSY {
            return result;
        }
        task::sleep_until(time::now() + pause);
    }
    HV_BUSY
}

/// What the command line says of devices that `driver` knows, without its name: words of its own.
pub fn words_of(driver: &str) -> impl Iterator<Item = &'static str> {
    texts().filter_map(move |text| text.strip_prefix(driver)?.strip_prefix(','))
}

fn texts() -> impl Iterator<Item = &'static str> {
    let texts = layout::boot_info().words().filter_map(|word| word.strip_prefix(WORD));
    texts.filter_map(|text| core::str::from_utf8(text).ok())
}
