// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of the device table, 256 bits for each device (IOMMU 2.2.2.1): its tables for addresses
//! and for interrupts.
//!
//! An entry that is not valid lets everything pass, so the hypervisor has a valid one for each
//! device.

use crtos_partition::address::PhysAddr;

use crate::attachment::{Attachment, Refused, Stage, Translation};
use crate::tables::{MAX_LEVELS, Rights};
use crate::{DomainId, bit, field, flag};

/// Bytes of an entry.
pub const SIZE: u64 = 32;
/// Largest order of the number of entries of a table for interrupts.
pub const MAX_INTERRUPT_ORDER: u32 = 11;

const VALID: u64 = 1 << 0;
const TRANSLATES: u64 = 1 << 1;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const INTERRUPT_ADDRESS: u64 = 0x000f_ffff_ffff_ffc0;

/// What becomes of a device's interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// They are refused.
    Blocked,
    /// They pass as they are.
    PassThrough,
    /// They are remapped.
    Table {
        /// Where the table lies.
        address: PhysAddr,
        /// It has 2^`order` entries.
        order: u32,
    },
}

impl Attachment {
    /// From an entry.
    pub fn of_device(raw: [u64; 4]) -> Result<Self, Refused> {
        let [low, high, ..] = raw;
        let rights = Rights { read: bit(low, 61), write: bit(low, 62) };
        let levels = field(low, 9, 3) as u8;
        let translation = if low & VALID == 0 {
            Translation::PassThrough(Rights::ALL)
        } else if low & TRANSLATES == 0 {
            Translation::Blocked
        } else if bit(low, 55) {
            Translation::Nested
        } else if levels > MAX_LEVELS {
            return Err(Refused::Malformed);
        } else if rights.is_none() {
            Translation::Blocked
        } else if levels == 0 {
            Translation::PassThrough(rights)
        } else {
            let top = PhysAddr::new(low & ADDRESS);
            Translation::Tables { stage: Stage::Second, top, levels, rights }
        };
        Ok(Self {
            translation,
            domain: DomainId(high as u16),
            device_tlb: low & VALID != 0 && bit(high, 32),
            silent: bit(high, 33) && bit(high, 34),
        })
    }
}

impl Interrupts {
    /// From an entry.
    pub fn of_device(raw: [u64; 4]) -> Result<Self, Refused> {
        let word = raw[2];
        let order = field(word, 1, 4) as u32;
        match (bit(word, 0), field(word, 60, 2)) {
            (false, _) | (true, 1) => Ok(Self::PassThrough),
            (true, 0) => Ok(Self::Blocked),
            (true, 2) if order <= MAX_INTERRUPT_ORDER => {
                Ok(Self::Table { address: PhysAddr::new(word & INTERRUPT_ADDRESS), order })
            }
            _ => Err(Refused::Malformed),
        }
    }
}

/// The hypervisor's tables for addresses of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Where the top table lies.
    pub top: PhysAddr,
    /// Its level.
    pub levels: u8,
    /// By which number the unit tags what it caches of them.
    pub domain: DomainId,
    /// What is allowed.
    pub rights: Rights,
}

/// An entry of the hypervisor. Without tables for addresses, or with [`Interrupts::Blocked`], it
/// refuses these; with [`Interrupts::PassThrough`] fixed interrupts and those of lowest priority
/// pass. It says of the tables themselves that there are none, since QEMU's unit lets
/// everything pass where there are no levels, whatever the rights. What `raw`, an entry of Linux,
/// says of reports and of caches is kept. Never set are the device's own translations, the range
/// that is exempted, and the messages that would pass to any CPU: INIT, NMI, those of the old
/// interrupt controller. Messages of system management pass if Linux says so and the device is a
/// part of the `chipset`.
pub fn device(
    raw: [u64; 4],
    tables: Option<Tables>,
    interrupts: Interrupts,
    chipset: bool,
) -> [u64; 4] {
    /// SE, SA.
    const REPORTS: u64 = 3 << 33;
    const SYSTEM_MANAGEMENT: u64 = 3 << 40;
    /// AttrV, Mode0FC, SnoopAttribute.
    const CACHES: u64 = 0x3ff << 54;
    let (translation, domain) = match tables {
        Some(Tables { top, levels, domain, rights }) => (
            TRANSLATES
                | top.get()
                | u64::from(levels) << 9
                | flag(rights.read, 61)
                | flag(rights.write, 62),
            domain,
        ),
        None => (0, DomainId(0)),
    };
    let kept = REPORTS | if chipset { SYSTEM_MANAGEMENT } else { 0 };
    let remapping = match interrupts {
        Interrupts::Table { address, order } => 1 | u64::from(order) << 1 | address.get() | 2 << 60,
        Interrupts::PassThrough => 1 | 1 << 60,
        Interrupts::Blocked => 1,
    };
    [VALID | translation, raw[1] & kept | u64::from(domain.0), remapping, raw[3] & CACHES]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// Whatever Linux writes, the device gets what the hypervisor says.
        #[test]
        fn what_the_hypervisor_writes_is_what_it_means(
            raw: [u64; 4],
            frame in 1u64..1 << 40,
            levels in 1u8..=6,
            domain: u16,
            rights in 0u8..4,
            order in 0u32..=11,
            table in 1u64..1 << 46,
            chipset: bool,
        ) {
            let rights = Rights { read: rights & 1 != 0, write: rights & 2 != 0 };
            let (top, domain) = (PhysAddr::new(frame << 12), DomainId(domain));
            let tables = Tables { top, levels, domain, rights };
            let interrupts = Interrupts::Table { address: PhysAddr::new(table << 6), order };
            let entry = device(raw, Some(tables), interrupts, chipset);
            let attachment = Attachment::of_device(entry).expect("well-formed");
            let translation = match rights.is_none() {
                true => Translation::Blocked,
                false => Translation::Tables { stage: Stage::Second, top, levels, rights },
            };
            prop_assert_eq!(attachment.translation, translation);
            prop_assert_eq!((attachment.domain, attachment.device_tlb), (domain, false));
            prop_assert_eq!(Interrupts::of_device(entry), Ok(interrupts));

            let blocked = device(raw, None, Interrupts::Blocked, chipset);
            let attachment = Attachment::of_device(blocked).expect("well-formed");
            prop_assert_eq!(attachment.translation, Translation::Blocked);
            // Without levels there are no tables.
            for entry in [entry, blocked] {
                prop_assert_eq!(entry[0] & 1, 1);
                prop_assert_eq!(entry[0] >> 1 & 1 != 0, entry[0] >> 9 & 7 != 0);
            }
            prop_assert_eq!(Interrupts::of_device(blocked), Ok(Interrupts::Blocked));
            let passing = device(raw, None, Interrupts::PassThrough, chipset);
            prop_assert_eq!(Interrupts::of_device(passing), Ok(Interrupts::PassThrough));
            for entry in [entry, blocked, passing] {
                // GV, PPR; IOTLB, EX, IoCtl; INIT, ExtINT, NMI, LINT0, LINT1.
                prop_assert_eq!(entry[0] & (1 << 52 | 1 << 53 | 1 << 54 | 1 << 55), 0);
                prop_assert_eq!(entry[1] & (1 << 32 | 3 << 35 | 1 << 39), 0);
                prop_assert_eq!(entry[2] & (7 << 56 | 3 << 62), 0);
                prop_assert_eq!(entry[1] >> 40 & 3, if chipset { raw[1] >> 40 & 3 } else { 0 });
                // Only bits that describe caches.
                prop_assert_eq!(entry[3], raw[3] & 0xffc0_0000_0000_0000);
            }
        }

        #[test]
        fn hostile_entries_are_understood_or_refused(raw: [u64; 4]) {
            let own = DomainId(0xfff0)..=DomainId(0xffff);
            if raw[0] & (1 << 55 | 3) == 1 << 55 | 3 {
                let translation = Attachment::of_device(raw).map(|found| found.translation);
                prop_assert_eq!(translation, Ok(Translation::Nested));
            } else if let Ok(attachment) = Attachment::of_device(raw) {
                if let Translation::Tables { levels, top, .. } = attachment.translation {
                    prop_assert!((1..=6).contains(&levels) && top.is_aligned(4096));
                    let refused = attachment.check(&own).is_err();
                    prop_assert_eq!(refused, own.contains(&attachment.domain));
                }
            } else {
                prop_assert_eq!(raw[0] >> 9 & 7, 7);
                prop_assert_eq!(raw[0] & 3, 3);
            }
            if let Ok(Interrupts::Table { address, order }) = Interrupts::of_device(raw) {
                prop_assert!(order <= MAX_INTERRUPT_ORDER && address.is_aligned(64));
            }
        }
    }

    #[test]
    fn what_is_not_valid_passes() {
        let attachment = Attachment::of_device([0; 4]).expect("well-formed");
        assert_eq!(attachment.translation, Translation::PassThrough(Rights::ALL));
        assert_eq!(Interrupts::of_device([0; 4]), Ok(Interrupts::PassThrough));
        let attachment = Attachment::of_device([1, 0, 0, 0]).expect("well-formed");
        assert_eq!(attachment.translation, Translation::Blocked);
    }
}
