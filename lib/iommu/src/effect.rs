// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a command of Linux means for the hypervisor's copies: which entries of Linux are to be
//! looked at again.
//!
//! Linux tells its IOMMU by commands of a queue what it changed. The hypervisor reads each command
//! instead, looks at the entries again that it names, changes the copies, has the unit forget what
//! it cached of them, and only then tells Linux that the command is done.

use core::ops::RangeInclusive;

use crtos_partition::address::PhysAddr;

use crate::{DomainId, Requester};

/// What a command means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing to look at: a hint, or what the hypervisor does anyway.
    Nothing,
    /// The translations of these devices, and what follows from them.
    Devices(Devices),
    /// Entries of the tables of processes: of a domain or all, of one process or all.
    Processes(Option<DomainId>, Option<u32>),
    /// Mappings of a domain or of all: of these input addresses, or all.
    Mappings(Option<DomainId>, Option<RangeInclusive<u64>>),
    /// Mappings of one process in a domain: of these input addresses, or all.
    ProcessMappings(DomainId, u32, Option<RangeInclusive<u64>>),
    /// Entries for interrupts with these numbers.
    Interrupts(RangeInclusive<u16>),
    /// All entries for interrupts of a device.
    InterruptsOf(Requester),
    /// Everything.
    All,
    /// A command to a device: to forget what it cached of translations, or an answer to its
    /// request for a page. It is passed on if the device is Linux's.
    ToDevice(Requester),
    /// Linux is to be told when all commands before this one are done.
    Completion(Completion),
}

/// Some devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// All.
    All,
    /// Those of a domain.
    Of(DomainId),
    /// Those whose ids are this one, but for the bits that are set in the mask.
    Like(Requester, u16),
}

impl Devices {
    /// Tells whether `device`, whose present translation is in `domain`, is one of them.
    pub fn contain(&self, device: Requester, domain: DomainId) -> bool {
        match *self {
            Self::All => true,
            Self::Of(other) => domain == other,
            Self::Like(other, mask) => (device.0 ^ other.0) & !mask == 0,
        }
    }
}

/// How Linux is told that commands are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What to store where. The address is Linux's say, to be checked: the unit would store there
    /// untranslated.
    pub store: Option<Store>,
    /// An interrupt for the event.
    pub interrupt: bool,
}

/// A store that tells of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// Where, aligned to `size`.
    pub address: PhysAddr,
    /// What.
    pub value: u64,
    /// How many bytes of it: 4 or 8.
    pub size: u8,
}

/// Why a command is invalid. The unit would stop at it and report an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// There is no such command, or not in this mode.
    Kind,
    /// A field has a reserved value, or a reserved bit is set.
    Reserved,
}

/// The input addresses of the aligned piece of 2^`order` bytes around `address`; `None` if that is
/// all of them.
pub(crate) fn piece(address: u64, order: u32) -> Option<RangeInclusive<u64>> {
    let size = 1u64.checked_shl(order)?;
    Some(address & !(size - 1)..=address | (size - 1))
}
