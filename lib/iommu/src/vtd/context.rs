// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tables translate for a device: root and context entries, and in scalable mode directories
//! and tables of processes (VT-d 9.1 to 9.6).
//!
//! A root table has an entry for each bus. A context table has 256 entries of 128 bits, or half as
//! many of 256 bits: in scalable mode, a root entry names two tables.

use crtos_partition::address::PhysAddr;

use crate::attachment::{Attachment, Refused, Stage, Translation};
use crate::tables::Rights;
use crate::{DomainId, bit, field, flag};

/// Bits of an address in an entry, which is that of a page. The highest ones are reserved, from the
/// machine's address width on: no memory lies there.
const ADDRESS: u64 = !0xfff;

/// Order of the number of entries of a table of processes (VT-d 9.5).
pub const PROCESS_TABLE_ORDER: u32 = 6;

/// The table that a half of a root entry, or an entry of a directory of processes, tells of (VT-d
/// 9.1, 9.2, 9.5); `None` if it is not present.
pub fn table(entry: u64) -> Result<Option<PhysAddr>, Refused> {
    // Bit 1 suppresses faults in a directory, and is reserved in a root entry.
    match (bit(entry, 0), field(entry, 2, 10)) {
        (false, _) => Ok(None),
        (true, 0) => Ok(Some(PhysAddr::new(entry & ADDRESS))),
        _ => Err(Refused::Malformed),
    }
}

/// Levels of second-stage tables with this address width (VT-d 9.3).
fn levels(width: u64) -> Result<u8, Refused> {
    if (1..=3).contains(&width) { Ok(width as u8 + 2) } else { Err(Refused::Malformed) }
}

/// Second-stage tables at `top`.
fn second_stage(top: u64, width: u64) -> Result<Translation, Refused> {
    Ok(Translation::Tables {
        stage: Stage::Second,
        top: PhysAddr::new(top & ADDRESS),
        levels: levels(width)?,
        rights: Rights::ALL,
    })
}

impl Attachment {
    /// From a context entry of legacy mode (VT-d 9.3).
    pub fn of_context(raw: u128) -> Result<Self, Refused> {
        let (low, high) = (raw as u64, (raw >> 64) as u64);
        let mut attachment = Self {
            translation: Translation::Blocked,
            domain: DomainId(field(high, 8, 16) as u16),
            device_tlb: false,
            silent: bit(low, 1),
        };
        if !bit(low, 0) {
            return Ok(attachment);
        }
        if field(low, 4, 8) | flag(bit(high, 7), 0) | high >> 24 != 0 {
            return Err(Refused::Malformed);
        }
        let kind = field(low, 2, 2);
        attachment.device_tlb = kind == 1;
        attachment.translation = match kind {
            0 | 1 => second_stage(low, field(high, 0, 3))?,
            2 => Translation::PassThrough(Rights::ALL),
            _ => return Err(Refused::Malformed),
        };
        Ok(attachment)
    }

    /// From a context entry of scalable mode (VT-d 9.4). Its domain is that of the process.
    pub fn of_scalable_context(raw: [u64; 4]) -> Result<Self, Refused> {
        let [low, high, ..] = raw;
        let mut attachment = Self {
            translation: Translation::Blocked,
            domain: DomainId(0),
            device_tlb: bit(low, 2),
            silent: bit(low, 1),
        };
        if !bit(low, 0) {
            return Ok(attachment);
        }
        if field(low, 7, 2) | high >> 21 | raw[2] | raw[3] != 0 {
            return Err(Refused::Malformed);
        }
        attachment.translation = Translation::Processes {
            directory: PhysAddr::new(low & ADDRESS),
            order: field(low, 9, 3) as u32 + 7,
            process: field(high, 0, 20) as u32,
            others: bit(low, 3),
        };
        Ok(attachment)
    }

    /// From an entry for a process (VT-d 9.6).
    pub fn of_process(raw: [u64; 8]) -> Result<Self, Refused> {
        let [low, high, first, ..] = raw;
        let mut attachment = Self {
            translation: Translation::Blocked,
            domain: DomainId(high as u16),
            device_tlb: false,
            silent: bit(low, 1),
        };
        if !bit(low, 0) {
            return Ok(attachment);
        }
        let reserved = flag(bit(low, 5), 0)
            | field(low, 10, 2)
            | field(high, 16, 7)
            | field(high, 27, 5)
            | flag(bit(first, 1), 0)
            | field(first, 8, 4);
        if reserved != 0 {
            return Err(Refused::Malformed);
        }
        attachment.translation = match field(low, 6, 3) {
            1 if field(first, 2, 2) <= 1 => Translation::Tables {
                stage: Stage::First,
                top: PhysAddr::new(first & ADDRESS),
                levels: 4 + field(first, 2, 2) as u8,
                rights: Rights::ALL,
            },
            2 => second_stage(low, field(low, 2, 3))?,
            3 => Translation::Nested,
            4 => Translation::PassThrough(Rights::ALL),
            _ => return Err(Refused::Malformed),
        };
        Ok(attachment)
    }
}

/// A context entry of legacy mode of the hypervisor: second-stage tables at `top`.
pub fn context(top: PhysAddr, levels: u8, domain: DomainId, silent: bool) -> u128 {
    let low = 1 | flag(silent, 1) | top.get();
    let high = u64::from(levels - 2) | u64::from(domain.0) << 8;
    u128::from(high) << 64 | u128::from(low)
}

/// A context entry of scalable mode of the hypervisor, with its own `directory` of 2^`order`
/// entries.
pub fn scalable_context(
    directory: PhysAddr,
    order: u32,
    process: u32,
    others: bool,
    silent: bool,
) -> [u64; 4] {
    let low = 1 | flag(silent, 1) | flag(others, 3) | u64::from(order - 7) << 9 | directory.get();
    [low, field(process.into(), 0, 20), 0, 0]
}

/// An entry for a process of the hypervisor: tables at `top`. Those parts of `raw`, a well-formed
/// entry of Linux, are kept which say how caches are accessed.
pub fn process(
    raw: [u64; 8],
    stage: Stage,
    top: PhysAddr,
    levels: u8,
    domain: DomainId,
) -> [u64; 8] {
    /// PAT, EMTE, CD, PGSNP, PWSNP.
    const CACHES: u64 = 0xffff_ffff_0780_0000;
    // The address width counts for the second stage; the emulator asks for it in either.
    let low = 1 | raw[0] & 2 | u64::from(levels - 2) << 2;
    let high = raw[1] & CACHES | u64::from(domain.0);
    match stage {
        Stage::Second => [low | 2 << 6 | top.get(), high, 0, 0, 0, 0, 0, 0],
        Stage::First => [low | 1 << 6, high, u64::from(levels - 4) << 2 | top.get(), 0, 0, 0, 0, 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: core::ops::RangeInclusive<DomainId> = DomainId(0xff00)..=DomainId(0xffff);

    fn tables(stage: Stage, top: PhysAddr, levels: u8) -> Translation {
        Translation::Tables { stage, top, levels, rights: Rights::ALL }
    }

    /// A word of which most bits are often clear.
    fn sparse() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), (any::<u64>(), any::<u64>()).prop_map(|(a, b)| a & b & 0xff_f00f)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn what_the_hypervisor_writes_is_what_it_means(
            frame in 1u64..1 << 34,
            levels in 3u8..=5,
            domain: u16,
            process in 0u32..1 << 20,
            order in 7u32..=14,
            others: bool,
            silent: bool,
            caches: u64,
        ) {
            let (top, domain) = (PhysAddr::new(frame << 12), DomainId(domain));
            let translation = tables(Stage::Second, top, levels);
            let attachment = Attachment { translation, domain, device_tlb: false, silent };
            let entry = context(top, levels, domain, silent);
            prop_assert_eq!(Attachment::of_context(entry), Ok(attachment));

            let raw = [1 | u64::from(silent) << 1, caches & !0xf87f_ffff, 0, 0, 0, 0, 0, 0];
            let second = super::process(raw, Stage::Second, top, levels, domain);
            prop_assert_eq!(Attachment::of_process(second), Ok(attachment));
            prop_assert_eq!(second[1] >> 16, raw[1] >> 16);
            // Nothing reserved is kept.
            let hostile = [!0, caches, !0, !0, !0, !0, !0, !0];
            for stage in [Stage::First, Stage::Second] {
                let entry = super::process(hostile, stage, top, 4, domain);
                prop_assert_eq!(entry[1] & 0xf87f_0000, 0);
                prop_assert!(Attachment::of_process(entry).is_ok());
            }
            let levels = levels.max(4);
            let first = super::process(raw, Stage::First, top, levels, domain);
            let translation = tables(Stage::First, top, levels);
            let attachment = Attachment { translation, ..attachment };
            prop_assert_eq!(Attachment::of_process(first), Ok(attachment));

            let entry = scalable_context(top, order, process, others, silent);
            let translation = Translation::Processes { directory: top, order, process, others };
            let attachment = Attachment { translation, domain: DomainId(0), ..attachment };
            prop_assert_eq!(Attachment::of_scalable_context(entry), Ok(attachment));
        }

        /// Whatever Linux writes, no copy is made with a domain of the hypervisor.
        #[test]
        fn domains_of_the_hypervisor_are_its_own(
            words in prop::array::uniform8(sparse()),
            domain in prop_oneof![any::<u16>(), 0xfef0u16..=0xffff],
        ) {
            let mut words = words;
            let raw = u128::from(words[1] & !0xffff00 | u64::from(domain) << 8) << 64
                | u128::from(words[0]);
            words[1] = words[1] & !0xffff | u64::from(domain);
            for found in [Attachment::of_context(raw), Attachment::of_process(words)] {
                let Ok(attachment) = found else { continue };
                prop_assert_eq!(attachment.domain, DomainId(domain));
                let uses = matches!(
                    attachment.translation,
                    Translation::PassThrough(_) | Translation::Tables { .. }
                );
                let refused = attachment.check(&OWN) == Err(Refused::Domain);
                prop_assert_eq!(refused, uses && domain >= 0xff00);
            }
            let _ = Attachment::of_scalable_context([words[0], words[1], words[2], words[3]]);
            let _ = table(words[0]);
        }

        /// What a unit refuses by the tables of VT-d 9.3, 9.4 and 9.6, and nothing else, is
        /// malformed. Bits for what it may have or not are left to what the copy has of it.
        #[test]
        fn what_is_reserved_is_malformed(
            words in prop::array::uniform8(prop_oneof![
                Just(0),
                Just(0),
                Just(0),
                (0u32..64).prop_map(|bit| 1u64 << bit),
            ]),
            kind in 0u64..8,
            width in 0u64..8,
        ) {
            let width_exists = (1..=3).contains(&width);
            let [low, high, ..] = words;
            let entry = [low & !0xc | 1 | (kind & 3) << 2, high & !7 | width];
            let raw = u128::from(entry[1]) << 64 | u128::from(entry[0]);
            let exists = kind & 3 == 2 || kind & 3 < 2 && width_exists;
            let reserved = entry[0] & 0xff0 | entry[1] & 0xffff_ffff_ff00_0080;
            prop_assert_eq!(Attachment::of_context(raw).is_ok(), exists && reserved == 0);

            let entry = [low | 1, high, words[2], words[3]];
            let reserved = low & 0x180 | high >> 21 | words[2] | words[3];
            prop_assert_eq!(Attachment::of_scalable_context(entry).is_ok(), reserved == 0);

            let mut entry = words;
            entry[0] = low & !0x1dc | 1 | kind << 6 | width << 2;
            let paging_mode = words[2] >> 2 & 3;
            let exists = match kind {
                1 => paging_mode <= 1,
                2 => width_exists,
                kind => kind == 3 || kind == 4,
            };
            let reserved = entry[0] & 0xc20 | high & 0xf87f_0000 | words[2] & 0xf02;
            prop_assert_eq!(Attachment::of_process(entry).is_ok(), exists && reserved == 0);
        }

        /// A unit refuses what has reserved bits, so nothing is lost if no copy is made of it.
        #[test]
        fn what_is_not_present_is_blocked(word in sparse(), high: u64) {
            let low = word & !1;
            let raw = u128::from(high) << 64 | u128::from(low);
            let found = Attachment::of_context(raw).map(|attachment| attachment.translation);
            prop_assert_eq!(found, Ok(Translation::Blocked));
            prop_assert_eq!(table(low), Ok(None));
        }
    }

    #[test]
    fn kinds_of_translation() {
        let pass = (2 | 7 << 8_u128) << 64 | 2 << 2 | 1;
        let attachment = Attachment::of_context(pass).expect("well-formed");
        assert_eq!(attachment.translation, Translation::PassThrough(Rights::ALL));
        assert_eq!(attachment.domain, DomainId(7));
        let cached = 2 << 64 | 0x1000 | 1 << 2 | 1;
        assert!(Attachment::of_context(cached).expect("well-formed").device_tlb);
        assert_eq!(Attachment::of_context(3 << 2 | 1), Err(Refused::Malformed));
        let nested = Attachment::of_process([3 << 6 | 1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(nested.expect("well-formed").check(&OWN), Err(Refused::Nested));
    }
}
