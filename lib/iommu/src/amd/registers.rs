// SPDX-License-Identifier: MIT OR Apache-2.0
//! Offsets and bits of a unit's registers, 64 bits each (IOMMU 3.4). They are in 16 KiB, or in 512
//! KiB if there are performance counters.

use crate::{bit, field};

/// Address and size of the device table, of [`device_table`].
pub const DEVICE_TABLE: u64 = 0x0000;
/// Address and size of the command buffer, of [`buffer`].
pub const COMMAND_BUFFER: u64 = 0x0008;
/// Address and size of the event log, of [`buffer`]: the unit stores there.
pub const EVENT_LOG: u64 = 0x0010;
/// Of [`control`].
pub const CONTROL: u64 = 0x0018;
/// Start of the range that is exempted from translation, or to which completions are stored.
pub const EXCLUSION_BASE: u64 = 0x0020;
/// Its end.
pub const EXCLUSION_LIMIT: u64 = 0x0028;
/// [`Features`].
pub const FEATURES: u64 = 0x0030;
/// Address and size of the log of requests for pages, of [`buffer`]: the unit stores there.
pub const PAGE_REQUEST_LOG: u64 = 0x0038;
/// Address and size of the log of posted interrupts: the unit stores there.
pub const GUEST_LOG: u64 = 0x00e0;
/// Where the unit stores the tail of that log.
pub const GUEST_LOG_TAIL: u64 = 0x00e8;
/// Address and size of the second log of requests for pages.
pub const PAGE_REQUEST_LOG_B: u64 = 0x00f0;
/// Address and size of the second event log.
pub const EVENT_LOG_B: u64 = 0x00f8;
/// Address of the unit's own message, lower half first, and data: 32 bits each. It is a copy of
/// what is in configuration space.
pub const MESSAGE: u64 = 0x015c;
/// The interrupt for events, in x2APIC mode; those for requests for pages and for posted interrupts
/// follow.
pub const EVENT_INTERRUPT: u64 = 0x0170;
/// The interrupt for requests for pages, in x2APIC mode.
pub const PAGE_REQUEST_INTERRUPT: u64 = 0x0178;
/// The interrupt for the log of posted interrupts, in x2APIC mode.
pub const GUEST_INTERRUPT: u64 = 0x0180;
/// Head of the command buffer: an offset in bits 18..4.
pub const COMMAND_HEAD: u64 = 0x2000;
/// Tail of the command buffer: an offset in bits 18..4.
pub const COMMAND_TAIL: u64 = 0x2008;
/// Head of the event log: an offset in bits 18..4.
pub const EVENT_HEAD: u64 = 0x2010;
/// Tail of the event log: an offset in bits 18..4.
pub const EVENT_TAIL: u64 = 0x2018;
/// Of [`status`].
pub const STATUS: u64 = 0x2020;
/// Head of the log of requests for pages.
pub const PAGE_REQUEST_HEAD: u64 = 0x2030;
/// Tail of the log of requests for pages.
pub const PAGE_REQUEST_TAIL: u64 = 0x2038;
/// Head of the log of posted interrupts.
pub const GUEST_HEAD: u64 = 0x2040;
/// Tail of the log of posted interrupts.
pub const GUEST_TAIL: u64 = 0x2048;
/// First of the performance counters, which are of no consequence for others.
pub const COUNTERS: u64 = 0x4000;

/// Bits of [`DEVICE_TABLE`].
pub mod device_table {
    /// Address, that of a page.
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
    /// Size: this + 1 pages, of 128 entries each.
    pub const SIZE: u64 = 0x1ff;
}

/// Bits of the registers of buffers.
pub mod buffer {
    /// Address, that of a page.
    pub const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
    /// Where the size starts, 4 bits: 2^this entries of 16 bytes, at least 256.
    pub const SIZE_SHIFT: u32 = 56;
}

/// Bits of [`CONTROL`].
pub mod control {
    /// Translation and remapping.
    pub const ENABLE: u64 = 1 << 0;
    /// How the unit uses the bus: HyperTransport's tunnel, times, order, snooping.
    pub const BUS: u64 = 1 << 1 | 7 << 5 | 0xf << 8;
    /// The event log.
    pub const EVENT_LOG: u64 = 1 << 2;
    /// The interrupt for events.
    pub const EVENT_INTERRUPT: u64 = 1 << 3;
    /// The interrupt for completions.
    pub const COMPLETION_INTERRUPT: u64 = 1 << 4;
    /// These interrupts.
    pub const INTERRUPTS: u64 = EVENT_INTERRUPT | COMPLETION_INTERRUPT;
    /// The command buffer.
    pub const COMMANDS: u64 = 1 << 12;
    /// Entries for interrupts have 128 bits, not 32.
    pub const LONG_ENTRIES: u64 = 1 << 17;
    /// The device table has several parts: three bits.
    pub const SEGMENTS: u64 = 7 << 34;
    /// Destinations have 32 bits.
    pub const EXTENDED: u64 = 1 << 50;
    /// Interrupts of the unit itself are those of [`super::EVENT_INTERRUPT`] and its followers.
    pub const OWN_EXTENDED: u64 = 1 << 51;
    /// Devices have up to 2,048 entries for interrupts, not 512: two bits.
    pub const MANY: u64 = 3 << 60;
    /// The unit does not cache entries for interrupts, so nobody tells of changes.
    pub const UNCACHED_INTERRUPTS: u64 = 1 << 59;
}

/// Bits of [`STATUS`].
pub mod status {
    /// What tells of Linux's log of events and of its commands: overflow, an event, a completion,
    /// the log runs. The logs of the other bits are off while the unit is taken over.
    pub const LINUX: u64 = 0xf;
    /// The event log is full. This and the other events are cleared by writing them.
    pub const EVENT_OVERFLOW: u64 = 1 << 0;
    /// An event was logged.
    pub const EVENT: u64 = 1 << 1;
    /// A command was completed that asked for an interrupt.
    pub const COMPLETION: u64 = 1 << 2;
    /// The event log is in use.
    pub const EVENT_LOG_RUNS: u64 = 1 << 3;
    /// Commands are carried out.
    pub const COMMANDS_RUN: u64 = 1 << 4;
}

/// What a unit can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// XTSup: destinations of 32 bits.
    pub fn has_extended_interrupts(self) -> bool {
        bit(self.0, 2)
    }

    /// GTSup: tables of guests on top of those of the host.
    pub fn nests(self) -> bool {
        bit(self.0, 4)
    }

    /// IASup: one command that invalidates everything.
    pub fn invalidates_all(self) -> bool {
        bit(self.0, 6)
    }

    /// GASup: entries for interrupts of 128 bits.
    pub fn has_long_entries(self) -> bool {
        bit(self.0, 7)
    }

    /// PCSup: performance counters.
    pub fn has_counters(self) -> bool {
        bit(self.0, 9)
    }

    /// HATS: levels that tables may have, at most.
    pub fn levels(self) -> u8 {
        field(self.0, 10, 2).min(2) as u8 + 4
    }
}

/// Bit 26 of a unit's capability in configuration space (IOMMU 3.2.1): entries that are not present
/// are cached, so Linux tells of all that it maps.
pub const CACHES_ABSENCE: u32 = 1 << 26;

/// Number of entries that a device table has, by its register.
pub const fn device_count(register: u64) -> u32 {
    (field(register, 0, 9) as u32 + 1) * 128
}

/// Number of entries that a buffer has, by its register; `None` if the size is reserved.
pub fn buffer_entries(register: u64) -> Option<u32> {
    let size = field(register, buffer::SIZE_SHIFT, 4) as u32;
    (size >= 8).then_some(1 << size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(device_count(0x1234_51ff), 1 << 16);
        assert_eq!(device_count(0x1234_5000), 128);
        assert_eq!(buffer_entries(9 << 56 | 0x1000), Some(512));
        assert_eq!(buffer_entries(7 << 56), None);
    }

    /// What QEMU's units report.
    #[test]
    fn features_of_an_emulated_unit() {
        let features = Features(0x29d3);
        assert_eq!(features.levels(), 6);
        assert!(features.nests() && features.invalidates_all() && features.has_long_entries());
        assert!(!features.has_extended_interrupts());
        assert!(Features(0x29d7).has_extended_interrupts());
    }
}
