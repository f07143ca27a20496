// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the addresses of a device are translated: what an entry for the device says, of both
//! vendors.

use core::ops::RangeInclusive;

use crtos_partition::address::PhysAddr;

use crate::DomainId;
use crate::tables::Rights;

/// How addresses are translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translation {
    /// Not at all: all requests are refused.
    Blocked,
    /// Not at all: they are the machine's.
    PassThrough(Rights),
    /// By tables.
    Tables {
        /// Their format.
        stage: Stage,
        /// Where the top table lies.
        top: PhysAddr,
        /// Its level.
        levels: u8,
        /// What is allowed.
        rights: Rights,
    },
    /// By tables that depend on the number of a process in the request (PASID).
    Processes {
        /// Where the directory lies.
        directory: PhysAddr,
        /// It has 2^`order` entries.
        order: u32,
        /// The process of requests that name none.
        process: u32,
        /// Requests may name one.
        others: bool,
    },
    /// By tables of a guest, and what results by tables of a host; or by those of a guest alone
    /// in AMD's way.
    Nested,
}

/// The format of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// That of the processor.
    First,
    /// The unit's own.
    Second,
}

/// What an entry for a device says of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// How they are translated.
    pub translation: Translation,
    /// By which number the unit tags what it caches of that; 0 where the entry has none.
    pub domain: DomainId,
    /// The device may ask for translations, and may then access what it says is the result.
    pub device_tlb: bool,
    /// Faults are not reported.
    pub silent: bool,
}

/// Why Linux may not attach a device so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The unit would take the entry for an error as well.
    Malformed,
    /// The domain's number is one of the hypervisor's: the device would hit what the unit has
    /// cached of a cell's tables.
    Domain,
    /// The hypervisor has no copies of such tables.
    Nested,
}

impl Attachment {
    /// Refuses what no copy can be made of; `own` are the hypervisor's domains. A copy never has
    /// [`Self::device_tlb`]: a device could access whatever it likes.
    pub fn check(&self, own: &RangeInclusive<DomainId>) -> Result<(), Refused> {
        match self.translation {
            Translation::Blocked | Translation::Processes { .. } => Ok(()),
            Translation::Nested => Err(Refused::Nested),
            _ if own.contains(&self.domain) => Err(Refused::Domain),
            _ => Ok(()),
        }
    }
}
