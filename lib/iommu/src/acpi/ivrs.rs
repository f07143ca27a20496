// SPDX-License-Identifier: MIT OR Apache-2.0
//! AMD's table, IVRS (IOMMU 5.2).

use core::ops::RangeInclusive;

use super::{Error, Reader, Structures, range, table};
use crate::amd::registers::{COUNTERS, Features};
use crate::{Requester, bit};

/// Offset of the first block.
const BLOCKS: usize = 48;
/// Bytes of a unit's registers with its performance counters.
const WITH_COUNTERS: u64 = 0x8_0000;

/// The table.
#[derive(Clone, Copy, Debug)]
pub struct Ivrs<'a>(&'a [u8]);

/// A block of the table.
#[derive(Clone, Debug)]
pub enum Block<'a> {
    /// A unit. There may be several blocks of one, in newer forms; the newest one counts.
    Unit {
        /// The form: 0x10, 0x11 or 0x40.
        form: u8,
        /// PCI segment of the unit and its devices.
        segment: u16,
        /// The unit's own id.
        requester: Requester,
        /// Offset of its capability in its configuration space.
        capability: u16,
        /// Its registers.
        registers: RangeInclusive<u64>,
        /// What it can do, unless the form is the oldest one.
        features: Option<Features>,
        /// Its devices.
        scope: Scope<'a>,
    },
    /// Memory that devices must reach, or that is exempted from translation.
    Memory {
        /// PCI segment of the devices.
        segment: u16,
        /// The devices.
        devices: RangeInclusive<u16>,
        /// The memory.
        memory: RangeInclusive<u64>,
        /// It is exempted.
        exempted: bool,
        /// They may read it.
        read: bool,
        /// They may write to it.
        write: bool,
    },
    /// One that is of no concern here, of this type.
    Other(u8),
}

/// An entry for devices of a unit. A range begins with one entry and ends with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    Padding,
    /// All devices.
    All,
    /// One device.
    One(Requester),
    /// The first of a range.
    First(Requester),
    /// The last of a range.
    Last(Requester),
    /// One device, whose requests come from another.
    Alias(Requester, Requester),
    /// The first of a range of devices, whose requests come from another.
    FirstAlias(Requester, Requester),
    /// An I/O APIC with this id.
    IoApic(u8, Requester),
    /// A timer that interrupts by messages, with this number.
    Hpet(u8, Requester),
    /// A device of the firmware's names.
    Named(Requester),
    /// One of this type.
    Other(u8),
}

impl<'a> Ivrs<'a> {
    /// From bytes that begin with the table.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Error> {
        table(bytes, b"IVRS", BLOCKS).map(Self)
    }

    /// Blocks in their order.
    pub fn blocks(&self) -> impl Iterator<Item = Result<Block<'a>, Error>> + use<'a> {
        let length = |rest: &[u8]| Reader(rest).u16(2).map(usize::from);
        let mut structures = Structures { table: self.0, at: BLOCKS, length };
        core::iter::from_fn(move || structures.next(Block::read))
    }
}

impl<'a> Block<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let read = Reader(bytes);
        let device = read.u16(4);
        match read.u8(0)? {
            form @ (0x10 | 0x11 | 0x40) => {
                let features = if form == 0x10 { None } else { Some(Features(read.u64(24)?)) };
                let base = read.u64(8)?;
                let size = match features {
                    Some(features) if features.has_counters() => WITH_COUNTERS,
                    _ => COUNTERS,
                };
                let devices = bytes.get(if form == 0x10 { 24 } else { 40 }..)?;
                Some(Self::Unit {
                    form,
                    segment: read.u16(16)?,
                    requester: Requester(device?),
                    capability: read.u16(6)?,
                    registers: range(base, size).filter(|_| base.is_multiple_of(COUNTERS))?,
                    features,
                    scope: Scope(devices),
                })
            }
            kind @ 0x20..=0x22 => {
                let devices = match kind {
                    0x20 => 0..=u16::MAX,
                    0x21 => device?..=device?,
                    _ => device?..=read.u16(6)?,
                };
                let flags = read.u8(1)?.into();
                Some(Self::Memory {
                    segment: read.u16(8)?,
                    devices,
                    memory: range(read.u64(16)?, read.u64(24)?)?,
                    exempted: bit(flags, 3),
                    read: bit(flags, 1),
                    write: bit(flags, 2),
                })
            }
            other => Some(Self::Other(other)),
        }
    }
}

/// Devices of a unit.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a>(&'a [u8]);

impl<'a> Scope<'a> {
    /// The entries in their order. Offsets of errors are those in the scope.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry, Error>> + use<'a> {
        let mut structures = Structures { table: self.0, at: 0, length: Entry::length };
        core::iter::from_fn(move || structures.next(Entry::read))
    }
}

impl Entry {
    fn length(bytes: &[u8]) -> Option<usize> {
        match bytes[0] {
            0..0x40 => Some(4),
            0x40..0x80 => Some(8),
            0xf0 => Some(22 + usize::from(*bytes.get(21)?)),
            _ => None,
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let read = Reader(bytes);
        let device = Requester(read.u16(1)?);
        let other = || read.u16(5).map(Requester);
        Some(match bytes[0] {
            0 => Self::Padding,
            1 => Self::All,
            2 | 0x46 => Self::One(device),
            3 | 0x47 => Self::First(device),
            4 => Self::Last(device),
            0x42 => Self::Alias(device, other()?),
            0x43 => Self::FirstAlias(device, other()?),
            0x48 if read.u8(7)? == 1 => Self::IoApic(read.u8(4)?, other()?),
            0x48 if read.u8(7)? == 2 => Self::Hpet(read.u8(4)?, other()?),
            0xf0 => Self::Named(device),
            kind => Self::Other(kind),
        })
    }
}
