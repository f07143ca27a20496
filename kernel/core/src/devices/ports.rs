// SPDX-License-Identifier: MIT OR Apache-2.0
//! I/O ports of a device, and those that programs of the realm may use.

use core::ops::RangeInclusive;

use x86_64::instructions::port::Port;

use crate::mm::layout;

/// The I/O ports of a device, which the realm has exclusively. There is such a value only for ports
/// that root has named as those of a device of the realm.
pub struct IoPorts {
    first: u16,
    count: u16,
}

impl IoPorts {
    pub(super) fn new(range: RangeInclusive<u16>) -> Self {
        Self { first: *range.start(), count: range.len() as u16 }
    }

    /// The first port.
    pub fn first(&self) -> u16 {
        self.first
    }

    #[inline(always)]
    fn at(&self, offset: u8) -> Option<u16> {
        let offset = u16::from(offset);
        // Nothing is left out: an offset has 8 bits, and the last port is one.
        (offset < self.count).then_some(self.first.wrapping_add(offset))
    }

    /// Reads a byte from the port at `offset`; all ones if that is no port of the device. Any
    /// context. On a bus as slow as a PC's oldest one, it takes about a microsecond.
    #[inline(always)]
    pub fn read(&self, offset: u8) -> u8 {
        let Some(port) = self.at(offset) else { return 0xff };
        // SAFETY: root gave the realm this port as one of a device that masters no bus, so no
        // memory changes by it. The hypervisor stops a cell that uses a port that it does not have.
        unsafe { Port::new(port).read() }
    }

    /// Writes a byte to the port at `offset`, as [`read`](Self::read).
    #[inline(always)]
    pub fn write(&self, offset: u8, value: u8) {
        let Some(port) = self.at(offset) else { return };
        // SAFETY: no memory changes by a port of a device that masters no bus, which is what root
        // gave the realm here.
        unsafe { Port::new(port).write(value) }
    }

    /// Reads the four ports from `offset` on at once; all ones if they are not all the device's.
    pub fn read_u32(&self, offset: u8) -> u32 {
        let Some(port) = self.four_at(offset) else { return u32::MAX };
        // SAFETY: as for a byte, see `read`: all four ports are the device's.
        unsafe { Port::new(port).read() }
    }

    /// Writes the four ports from `offset` on at once.
    pub fn write_u32(&self, offset: u8, value: u32) {
        let Some(port) = self.four_at(offset) else { return };
        // SAFETY: as for a byte, see `write`: all four ports are the device's.
        unsafe { Port::new(port).write(value) }
    }

    fn four_at(&self, offset: u8) -> Option<u16> {
        self.at(offset.checked_add(3)?)?;
        self.at(offset)
    }
}

/// The I/O ports that root gave programs of the realm, each range of them: the word
/// `ports=e9-e9,402-402` of the command line.
pub fn of_programs() -> impl Iterator<Item = RangeInclusive<u16>> {
    let mut words = layout::boot_info().words();
    let ports = words.find_map(|word| word.strip_prefix(b"ports=")).unwrap_or_default();
    ports.split(|&byte| byte == b',').filter_map(|range| {
        let (first, last) = core::str::from_utf8(range).ok()?.split_once('-')?;
        let number = |text| u16::from_str_radix(text, 16).ok();
        Some(number(first)?..=number(last)?).filter(|range| !range.is_empty())
    })
}

/// Whether root gave programs of the realm that port.
pub fn is_of_programs(number: u16) -> bool {
    of_programs().any(|range| range.contains(&number))
}

/// An I/O port that root gave programs of the realm ([`of_programs`]).
pub struct ProgramPort(u16);

impl ProgramPort {
    /// The port with that number, if it is one.
    pub fn new(number: u16) -> Option<Self> {
        is_of_programs(number).then_some(Self(number))
    }

    /// Reads a byte. Any context.
    pub fn read(&self) -> u8 {
        // SAFETY: the realm has the port, so the hypervisor does not stop it. Programs may use it
        // by themselves, so the kernel relies on nothing that is changed by it.
        unsafe { Port::new(self.0).read() }
    }

    /// Writes a byte. Any context.
    pub fn write(&self, value: u8) {
        // SAFETY: the realm has the port, and the kernel relies on nothing that is changed by it,
        // which a program could do without the kernel.
        unsafe { Port::new(self.0).write(value) }
    }
}
