// SPDX-License-Identifier: MIT OR Apache-2.0
//! Devices of the realm: which there are, and what drivers reach them by.
//!
//! The command line of the cell names each device by a word
//! `device=DRIVER,NAME,FIRST-LAST,LINE,…`: the driver that knows it, the name by which programs
//! do, its I/O ports (hexadecimal, exclusively the realm's; `FIRST-LAST+FIRST-LAST` if it has a
//! second range of them), the line on which it interrupts, and what the driver wants to know
//! besides.
//!
//! | module | concept |
//! |---|---|
//! | [`ports`] | I/O ports of a device |
//! | [`interrupts`] | vectors of devices |
//! | [`dma`] | memory that functions reach |
//! | [`pci`] | PCI functions that Linux gives the realm while it runs |

pub mod dma;
pub mod interrupts;
pub mod pci;
pub mod ports;

use core::ops::RangeInclusive;

use crtos_abi::hypercall::HV_BUSY;

use crate::mm::layout;
use crate::task;
use crate::time::{self, Nanos};
use ports::IoPorts;

/// What a word of the command line begins with that names a device.
pub(crate) const WORD: &[u8] = b"device=";

/// A device of the realm.
pub struct Device {
    /// The name by which programs know it.
    pub name: &'static str,
    /// Its I/O ports.
    pub ports: IoPorts,
    /// The second range of them, if it has one.
    pub further_ports: Option<IoPorts>,
    /// The line on which it interrupts, as Linux counts them.
    pub line: u32,
    /// What its driver wants to know besides.
    pub more: &'static str,
}

/// Makes a call about devices by `call`, which the hypervisor refuses while Linux makes one: then
/// the thread sleeps for `pause`, and tries again, so many times at most. Thread context.
fn call_again(tries: u32, pause: Nanos, mut call: impl FnMut() -> i64) -> i64 {
    for _ in 0..tries {
        let result = call();
        if result != HV_BUSY {
            return result;
        }
        task::sleep_until(time::now() + pause);
    }
    HV_BUSY
}

/// The devices that `driver` knows.
pub fn of_driver(driver: &str) -> impl Iterator<Item = Device> {
    texts().filter_map(move |text| device(text, driver))
}

/// What the command line says of devices that `driver` knows, without its name: words of its own.
pub fn words_of(driver: &str) -> impl Iterator<Item = &'static str> {
    texts().filter_map(move |text| text.strip_prefix(driver)?.strip_prefix(','))
}

/// Whether the command line gives that line to a device. Any context.
pub fn has_line(line: u32) -> bool {
    const FIELD: usize = 3;
    texts()
        .any(|text| text.split(',').nth(FIELD).and_then(|field| field.parse().ok()) == Some(line))
}

fn texts() -> impl Iterator<Item = &'static str> {
    let texts = layout::boot_info().words().filter_map(|word| word.strip_prefix(WORD));
    texts.filter_map(|text| core::str::from_utf8(text).ok())
}

/// The device that a word describes, if it is one of `driver`.
fn device(text: &'static str, driver: &str) -> Option<Device> {
    let mut fields = text.splitn(5, ',');
    fields.next().filter(|&other| other == driver)?;
    let (name, ports, line) = (fields.next()?, fields.next()?, fields.next()?);
    let mut ports = ports.split('+').map(range);
    Some(Device {
        name,
        ports: IoPorts::new(ports.next()??),
        further_ports: match ports.next() {
            Some(further) => Some(IoPorts::new(further?)),
            None => None,
        },
        line: line.parse().ok()?,
        more: fields.next().unwrap_or_default(),
    })
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-')?;
    let number = |text| u16::from_str_radix(text, 16).ok();
    Some(number(first)?..=number(last)?)
}
