// SPDX-License-Identifier: MIT OR Apache-2.0
//! Intel's table, DMAR (VT-d 8).

use core::ops::RangeInclusive;

use super::{Error, Reader, Structures, range, table};
use crate::{Requester, bit, field};

/// Offset of the first structure.
const STRUCTURES: usize = 48;

/// The table.
#[derive(Clone, Copy, Debug)]
pub struct Dmar<'a>(&'a [u8]);

/// A structure of the table.
#[derive(Clone, Debug)]
pub enum Structure<'a> {
    /// A unit (VT-d 8.3).
    Unit {
        /// PCI segment of its devices.
        segment: u16,
        /// Its registers.
        registers: RangeInclusive<u64>,
        /// It has all devices of the segment that no other has.
        rest: bool,
        /// Its devices.
        scope: Scope<'a>,
    },
    /// Memory that devices must reach (VT-d 8.4).
    Reserved {
        /// PCI segment of the devices.
        segment: u16,
        /// The memory.
        memory: RangeInclusive<u64>,
        /// The devices.
        scope: Scope<'a>,
    },
    /// One that is of no concern here, of this type.
    Other(u16),
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A function of PCI.
    Endpoint,
    /// A bridge, and all behind it.
    Bridge,
    /// An I/O APIC, with its id.
    IoApic(u8),
    /// A timer that interrupts by messages, with its number.
    Hpet(u8),
    /// A device of the firmware's names, with its number.
    Named(u8),
    /// One of this type.
    Other(u8),
}

/// A device (VT-d 8.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device<'a> {
    /// What it is.
    pub kind: Kind,
    /// The bus that the path begins on.
    pub bus: u8,
    /// Device and function on each bus, from bridge to bridge.
    pub path: &'a [u8],
}

impl Device<'_> {
    /// Its id, if no bridge has to be asked for it.
    pub fn requester(&self) -> Option<Requester> {
        match self.path {
            [device @ 0..=31, function @ 0..=7] => {
                let low = u16::from(device << 3 | function);
                Some(Requester(u16::from(self.bus) << 8 | low))
            }
            _ => None,
        }
    }
}

impl<'a> Dmar<'a> {
    /// From bytes that begin with the table.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        table(bytes, b"DMAR", STRUCTURES).map(Self)
    }

    /// Bits of the machine's addresses.
    pub fn address_bits(&self) -> u32 {
        u32::from(self.0[36]) + 1
    }

    /// Tells whether units remap interrupts.
    pub fn remaps_interrupts(&self) -> bool {
        bit(self.0[37].into(), 0)
    }

    /// Structures in their order.
    pub fn structures(&self) -> impl Iterator<Item = Result<Structure<'a>, Error>> + use<'a> {
        let length = |rest: &[u8]| Reader(rest).u16(2).map(usize::from);
        let mut structures = Structures { table: self.0, at: STRUCTURES, length };
        core::iter::from_fn(move || structures.next(Structure::read))
    }
}

impl<'a> Structure<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let read = Reader(bytes);
        let scope = |start| bytes.get(start..).map(Scope);
        match read.u16(0)? {
            0 => {
                let base = read.u64(8)?;
                // The size was reserved, and 0, before there were larger ones.
                let size = 0x1000 << field(read.u8(5)?.into(), 0, 4);
                let registers = range(base, size).filter(|_| base.is_multiple_of(size))?;
                let rest = bit(read.u8(4)?.into(), 0);
                Some(Self::Unit { segment: read.u16(6)?, registers, rest, scope: scope(16)? })
            }
            1 => {
                let (first, last) = (read.u64(8)?, read.u64(16)?);
                let fits = first.is_multiple_of(0x1000) && last & 0xfff == 0xfff && first < last;
                let scope = scope(24).filter(|_| fits)?;
                Some(Self::Reserved { segment: read.u16(6)?, memory: first..=last, scope })
            }
            other => Some(Self::Other(other)),
        }
    }
}

/// Devices of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a>(&'a [u8]);

impl<'a> Scope<'a> {
    /// The devices in their order. Offsets of errors are those in the scope.
    pub fn devices(&self) -> impl Iterator<Item = Result<Device<'a>, Error>> + use<'a> {
        let length = |rest: &[u8]| Reader(rest).u8(1).map(usize::from);
        let mut structures = Structures { table: self.0, at: 0, length };
        core::iter::from_fn(move || structures.next(Device::read))
    }
}

impl<'a> Device<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (head, path) = bytes.split_at_checked(6)?;
        if path.is_empty() || !path.len().is_multiple_of(2) {
            return None;
        }
        let number = head[4];
        let kind = match head[0] {
            1 => Kind::Endpoint,
            2 => Kind::Bridge,
            3 => Kind::IoApic(number),
            4 => Kind::Hpet(number),
            5 => Kind::Named(number),
            other => Kind::Other(other),
        };
        Some(Self { kind, bus: head[5], path })
    }
}
