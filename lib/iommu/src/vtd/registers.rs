// SPDX-License-Identifier: MIT OR Apache-2.0
//! Offsets and bits of a unit's registers (VT-d 11.4). They are in one aligned page, or in several
//! if the DMAR table says so.

use crate::{bit, field};

/// Architecture version, 32 bits (VT-d 11.4.1).
pub const VERSION: u64 = 0x00;
/// [`Capability`], 64 bits (VT-d 11.4.2).
pub const CAPABILITY: u64 = 0x08;
/// [`ExtendedCapability`], 64 bits (VT-d 11.4.3).
pub const EXTENDED_CAPABILITY: u64 = 0x10;
/// Global command, 32 bits, of [`global`] (VT-d 11.4.4.1).
pub const COMMAND: u64 = 0x18;
/// Global status, 32 bits, of [`global`] (VT-d 11.4.4.2).
pub const STATUS: u64 = 0x1c;
/// Address and mode of the root table, 64 bits, of [`root`] (VT-d 11.4.5).
pub const ROOT_TABLE: u64 = 0x20;
/// Invalidation of the context cache without a queue, 64 bits (VT-d 11.4.6.1).
pub const CONTEXT_COMMAND: u64 = 0x28;
/// Fault status, 32 bits, of [`fault`] (VT-d 11.4.7.1).
pub const FAULT_STATUS: u64 = 0x34;
/// Control of the event for faults, 32 bits, of [`event`] (VT-d 11.4.7.2).
pub const FAULT_CONTROL: u64 = 0x38;
/// Data, address and upper address of the message for faults follow each other from here on, 32
/// bits each (VT-d 11.4.7.3 to 11.4.7.5). It is not remapped.
pub const FAULT_DATA: u64 = 0x3c;
/// Enables the two protected ranges of memory, 32 bits (VT-d 11.4.8.1).
pub const PROTECTED_ENABLE: u64 = 0x64;
/// Head of the invalidation queue, 64 bits: an offset in bits 18..4 (VT-d 11.4.9.1).
pub const QUEUE_HEAD: u64 = 0x80;
/// Tail of the invalidation queue, 64 bits: an offset in bits 18..4 (VT-d 11.4.9.2).
pub const QUEUE_TAIL: u64 = 0x88;
/// Address of the invalidation queue, 64 bits, of [`queue`] (VT-d 11.4.9.3).
pub const QUEUE_ADDRESS: u64 = 0x90;
/// Tells of completions with an interrupt: bit 0, 32 bits (VT-d 11.4.9.4).
pub const COMPLETION_STATUS: u64 = 0x9c;
/// Control of the event for completions, 32 bits, of [`event`] (VT-d 11.4.9.5).
pub const COMPLETION_CONTROL: u64 = 0xa0;
/// Data, address and upper address of the message for completions, like those for faults (VT-d
/// 11.4.9.6 to 11.4.9.8).
pub const COMPLETION_DATA: u64 = 0xa4;
/// What was wrong with a descriptor, 64 bits (VT-d 11.4.9.9).
pub const QUEUE_ERROR: u64 = 0xb0;
/// Address of the interrupt-remapping table, 64 bits, of [`remapping`] (VT-d 11.4.10).
pub const REMAPPING_TABLE: u64 = 0xb8;
/// Head of the queue of requests for pages, 64 bits (VT-d 11.4.11.1).
pub const PAGE_REQUEST_HEAD: u64 = 0xc0;
/// Tail of the queue of requests for pages, 64 bits (VT-d 11.4.11.2).
pub const PAGE_REQUEST_TAIL: u64 = 0xc8;
/// Address of the queue of requests for pages, 64 bits: the unit stores there (VT-d 11.4.11.3).
pub const PAGE_REQUEST_ADDRESS: u64 = 0xd0;
/// Status of the queue of requests for pages, 32 bits (VT-d 11.4.11.4).
pub const PAGE_REQUEST_STATUS: u64 = 0xdc;
/// Control of the event for requests for pages, 32 bits, of [`event`] (VT-d 11.4.11.5).
pub const PAGE_REQUEST_CONTROL: u64 = 0xe0;
/// Data, address and upper address of the message for requests for pages, like those for faults
/// (VT-d 11.4.11.6 to 11.4.11.8).
pub const PAGE_REQUEST_DATA: u64 = 0xe4;

/// Bits of [`COMMAND`], and of [`STATUS`], where they tell that the command is done (VT-d
/// 11.4.4).
pub mod global {
    /// Translation of addresses.
    pub const TRANSLATION: u32 = 1 << 31;
    /// Set the root table; not a state.
    pub const ROOT_TABLE: u32 = 1 << 30;
    /// Flush the write buffer; set in the status until that is done.
    pub const WRITE_BUFFER: u32 = 1 << 27;
    /// The invalidation queue.
    pub const QUEUE: u32 = 1 << 26;
    /// Remapping of interrupts.
    pub const REMAPPING: u32 = 1 << 25;
    /// Set the interrupt-remapping table; not a state.
    pub const REMAPPING_TABLE: u32 = 1 << 24;
    /// Interrupts in compatibility format pass.
    pub const COMPATIBILITY: u32 = 1 << 23;

    /// The states: what a command repeats of the status, so as to leave it as it is.
    pub const STATES: u32 = TRANSLATION | QUEUE | REMAPPING | COMPATIBILITY;
}

/// Bits of [`ROOT_TABLE`] (VT-d 11.4.5).
pub mod root {
    /// Mode, two bits: [`LEGACY`], [`SCALABLE`] or [`ABORT`].
    pub const MODE_SHIFT: u32 = 10;
    /// Root and context entries of 128 bits.
    pub const LEGACY: u64 = 0;
    /// Context entries of 256 bits, and tables of processes.
    pub const SCALABLE: u64 = 1;
    /// All requests are refused.
    pub const ABORT: u64 = 3;
    /// Second-stage entries have their rights in bits 62 and 61. The hypervisor never sets it.
    pub const OTHER_RIGHTS: u64 = 1 << 7;
}

/// Bits of [`QUEUE_ADDRESS`] (VT-d 11.4.9.3).
pub mod queue {
    /// Descriptors have 256 bits, not 128.
    pub const WIDE: u64 = 1 << 11;
    /// Size: 2^this pages.
    pub const SIZE: u64 = 7;
}

/// Bits of [`REMAPPING_TABLE`] (VT-d 11.4.10).
pub mod remapping {
    /// Destinations have 32 bits, and interrupts in compatibility format are blocked.
    pub const EXTENDED: u64 = 1 << 11;
    /// Size: 2^(this + 1) entries.
    pub const SIZE: u64 = 0xf;
}

/// Bits of [`FAULT_STATUS`] (VT-d 11.4.7.1).
pub mod fault {
    /// There are more faults than records.
    pub const OVERFLOW: u32 = 1 << 0;
    /// There is a record.
    pub const PENDING: u32 = 1 << 1;
    /// The queue has stopped at a descriptor.
    pub const QUEUE: u32 = 1 << 4;
    /// A device answered an invalidation wrongly.
    pub const COMPLETION: u32 = 1 << 5;
    /// A device did not answer an invalidation; the queue has stopped.
    pub const TIME_OUT: u32 = 1 << 6;
}

/// Bits of the registers that control an event (VT-d 11.4.7.2).
pub mod event {
    /// No message is sent.
    pub const MASKED: u32 = 1 << 31;
    /// A message waits.
    pub const PENDING: u32 = 1 << 30;
}

/// Bits of a fault record (VT-d 11.4.7.6).
pub mod fault_record {
    /// Bytes of it.
    pub const SIZE: u64 = 16;
    /// Offset of the 32 bits by which it is cleared.
    pub const LAST_WORD: u64 = 12;
    /// Bit of these: there is a fault in the record, and to clear it.
    pub const RECORDED: u32 = 1 << 31;
}

/// What a unit can do (VT-d 11.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability(pub u64);

impl Capability {
    /// ND: number of domains.
    pub fn domains(self) -> u32 {
        1 << (4 + 2 * field(self.0, 0, 3).min(6))
    }

    /// RWBF: writes to tables have to be flushed.
    pub fn needs_flush(self) -> bool {
        bit(self.0, 4)
    }

    /// CM: entries that are not present are cached, so Linux tells of all that it maps.
    pub fn caches_absence(self) -> bool {
        bit(self.0, 7)
    }

    /// SAGAW: whether second-stage tables may have this number of levels.
    pub fn has_levels(self, levels: u8) -> bool {
        (3..=5).contains(&levels) && bit(self.0, 8 + u32::from(levels) - 2)
    }

    /// MGAW: bits of input addresses.
    pub fn input_bits(self) -> u32 {
        field(self.0, 16, 6) as u32 + 1
    }

    /// FRO: offset of the fault records, 16 bytes each (VT-d 11.4.7.6).
    pub fn fault_records(self) -> u64 {
        field(self.0, 24, 10) * 16
    }

    /// NFR: number of fault records.
    pub fn fault_record_count(self) -> u32 {
        field(self.0, 40, 8) as u32 + 1
    }

    /// Tells whether the register at `offset` belongs to a fault record.
    pub fn is_fault_record(self, offset: u64) -> bool {
        let first = self.fault_records();
        (first..first + 16 * u64::from(self.fault_record_count())).contains(&offset)
    }

    /// PSI: invalidation of pages.
    pub fn selects_pages(self) -> bool {
        bit(self.0, 39)
    }

    /// MAMV: largest order of pages to be invalidated at once.
    pub fn max_page_order(self) -> u32 {
        field(self.0, 48, 6) as u32
    }

    /// PI: posted interrupts.
    pub fn posts(self) -> bool {
        bit(self.0, 59)
    }

    /// ESIRTPS: setting the interrupt-remapping table invalidates what is cached.
    pub fn forgets_interrupts(self) -> bool {
        bit(self.0, 62)
    }

    /// ESRTPS: setting the root table invalidates what is cached.
    pub fn forgets_translations(self) -> bool {
        bit(self.0, 63)
    }
}

/// What else a unit can do (VT-d 11.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedCapability(pub u64);

impl ExtendedCapability {
    /// C: the unit sees what is in caches of processors.
    pub fn is_coherent(self) -> bool {
        bit(self.0, 0)
    }

    /// QI: the invalidation queue.
    pub fn has_queue(self) -> bool {
        bit(self.0, 1)
    }

    /// DT: devices may cache translations.
    pub fn has_device_tlbs(self) -> bool {
        bit(self.0, 2)
    }

    /// IR: remapping of interrupts.
    pub fn remaps_interrupts(self) -> bool {
        bit(self.0, 3)
    }

    /// EIM: destinations of 32 bits.
    pub fn has_extended_interrupts(self) -> bool {
        bit(self.0, 4)
    }

    /// PT: pass-through.
    pub fn passes_through(self) -> bool {
        bit(self.0, 6)
    }

    /// IRO: offset of the registers that invalidate without a queue, two of 64 bits (VT-d
    /// 11.4.6.2).
    pub fn invalidation_registers(self) -> u64 {
        field(self.0, 8, 10) * 16
    }

    /// MHMV: largest order of interrupts to be invalidated at once.
    pub fn max_interrupt_order(self) -> u32 {
        field(self.0, 20, 4) as u32
    }

    /// NEST: first-stage tables on top of second-stage tables.
    pub fn nests(self) -> bool {
        bit(self.0, 26)
    }

    /// DIT: invalidations of devices' caches name the physical function.
    pub fn throttles_devices(self) -> bool {
        bit(self.0, 41)
    }

    /// PDS: completions may wait for requests for pages.
    pub fn drains_page_requests(self) -> bool {
        bit(self.0, 42)
    }

    /// SMTS: scalable mode.
    pub fn has_scalable_mode(self) -> bool {
        bit(self.0, 43)
    }

    /// SSTS: second-stage tables in scalable mode.
    pub fn has_second_stage(self) -> bool {
        bit(self.0, 46)
    }

    /// FSTS: first-stage tables in scalable mode.
    pub fn has_first_stage(self) -> bool {
        bit(self.0, 47)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What QEMU's units report.
    #[test]
    fn capabilities_of_an_emulated_unit() {
        let capability = Capability(0x00d2_008c_222f_0606);
        assert_eq!(capability.domains(), 1 << 16);
        assert_eq!(
            [2, 3, 4, 5, 6].map(|n| capability.has_levels(n)),
            [false, true, true, false, false]
        );
        assert_eq!((capability.input_bits(), capability.max_page_order()), (48, 18));
        assert_eq!((capability.fault_records(), capability.fault_record_count()), (0x220, 1));
        assert!(capability.selects_pages() && !capability.caches_absence());
        assert!(!capability.needs_flush() && !capability.posts());
        assert!(!capability.forgets_translations() && !capability.forgets_interrupts());
        assert!(Capability(0x81d2_008c_222f_0606).forgets_translations());

        let extended = ExtendedCapability(0x00f0_0f5a);
        assert!(extended.has_queue() && extended.remaps_interrupts() && extended.passes_through());
        assert!(extended.has_extended_interrupts() && !extended.is_coherent());
        assert!(!extended.has_scalable_mode() && !extended.has_device_tlbs() && !extended.nests());
        assert_eq!((extended.invalidation_registers(), extended.max_interrupt_order()), (0xf0, 15));
        let extended = ExtendedCapability(0x8800_00f0_0f5a);
        assert!(extended.has_scalable_mode() && extended.has_first_stage());
        assert!(!extended.has_second_stage());
    }
}
