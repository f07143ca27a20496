// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of the interrupt-remapping table (VT-d 9.9 and 9.10), 128 bits each.

use core::ops::RangeInclusive;

use crate::interrupt::{self, Cpus, Interrupt, Refused, delivery, format};
use crate::{Requester, bit, field, flag};

/// Who may use an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Everybody.
    Any,
    /// This device; of its function number the unit compares the bits that are left when so many
    /// high ones are left out (0 to 3).
    Device(Requester, u8),
    /// Devices on these buses.
    Buses(RangeInclusive<u8>),
}

/// An entry for interrupts that are remapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Irte {
    /// What the unit sends.
    pub interrupt: Interrupt,
    /// Triggered by a level.
    pub level: bool,
    /// One of the destinations gets it.
    pub hint: bool,
    /// Faults are not reported.
    pub silent: bool,
    /// Bits for software (4).
    pub available: u8,
    /// Who may use it.
    pub source: Source,
}

impl Irte {
    /// From an entry; `None` if it is not present. `extended` says that destinations have 32 bits.
    pub fn decode(raw: u128, extended: bool) -> Result<Option<Self>, Refused> {
        let (low, high) = (raw as u64, (raw >> 64) as u64);
        if !bit(low, 0) {
            return Ok(None);
        }
        if bit(low, 15) {
            return Err(Refused::Posted);
        }
        let destination = (low >> 32) as u32;
        let reserved = field(low, 12, 3) | field(low, 24, 8) | high >> 20;
        if reserved != 0 || !extended && destination & !0xff00 != 0 {
            return Err(Refused::Malformed);
        }
        let id = high as u16;
        let source = match field(high, 18, 2) {
            0 => Source::Any,
            1 => Source::Device(Requester(id), field(high, 16, 2) as u8),
            2 => Source::Buses((id >> 8) as u8..=id as u8),
            _ => return Err(Refused::Malformed),
        };
        Ok(Some(Self {
            interrupt: Interrupt {
                vector: field(low, 16, 8) as u8,
                delivery: delivery(field(low, 5, 3)),
                logical: bit(low, 2),
                destination: if extended { destination } else { destination >> 8 },
                format: format(extended),
            },
            level: bit(low, 4),
            hint: bit(low, 3),
            silent: bit(low, 1),
            available: field(low, 8, 4) as u8,
            source,
        }))
    }

    /// To an entry. The delivery mode is fixed or lowest priority.
    pub fn encode(&self, extended: bool) -> u128 {
        let interrupt = &self.interrupt;
        let destination = u64::from(interrupt.destination);
        let low = 1
            | flag(self.silent, 1)
            | flag(interrupt.logical, 2)
            | flag(self.hint, 3)
            | flag(self.level, 4)
            | flag(interrupt.delivery == delivery(1), 5)
            | field(self.available.into(), 0, 4) << 8
            | u64::from(interrupt.vector) << 16
            | if extended { destination << 32 } else { field(destination, 0, 8) << 40 };
        let high = match &self.source {
            Source::Any => 0,
            Source::Device(id, left_out) => {
                1 << 18 | field((*left_out).into(), 0, 2) << 16 | u64::from(id.0)
            }
            Source::Buses(buses) => {
                2 << 18 | u64::from(*buses.start()) << 8 | u64::from(*buses.end())
            }
        };
        u128::from(high) << 64 | u128::from(low)
    }
}

/// The copy of an entry of Linux, and why it is a blocked one, if so.
pub fn copy(raw: u128, extended: bool, cpus: &impl Cpus) -> (u128, Result<(), Refused>) {
    let decoded = Irte::decode(raw, extended);
    let decoded = decoded.map(|entry| entry.map(|entry| (entry.interrupt, entry.encode(extended))));
    interrupt::copy(raw, decoded, cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::tests::{agrees, cells};
    use proptest::prelude::*;

    /// Any bits, but most of those that make an entry malformed are clear.
    fn raw() -> impl Strategy<Value = u128> {
        let low = prop_oneof![
            1 => any::<u64>(),
            3 => any::<u64>().prop_map(|low| low & !0xff00_f0e0),
            3 => any::<u64>().prop_map(|low| low & !0xff00_70c0),
        ];
        let destination = prop_oneof![0u64..64, (0u64..64).prop_map(|id| id << 8), any::<u64>()];
        let high = prop_oneof![1 => any::<u64>(), 1 => 0u64..1 << 21, 6 => 0u64..1 << 20];
        (low, destination, high, any::<bool>()).prop_map(|(low, destination, high, present)| {
            let low = low & 0xffff_fffe | u64::from(present) | destination << 32;
            u128::from(high) << 64 | u128::from(low)
        })
    }

    /// What a unit does with an entry, as figure 9-9 draws it; `None` if it refuses the interrupt,
    /// or posts it.
    fn sent(raw: u128, extended: bool) -> Option<Interrupt> {
        let bits = |last: u32, first: u32| (raw >> first & ((1 << (last - first + 1)) - 1)) as u32;
        let destination = bits(63, 32);
        let reserved = bits(14, 12) != 0
            || bits(31, 24) != 0
            || bits(115, 84) != 0
            || bits(127, 116) != 0
            || bits(83, 82) == 3
            || !extended && (bits(39, 32) != 0 || bits(63, 48) != 0);
        let is_sent = bits(0, 0) == 1 && bits(15, 15) == 0 && !reserved;
        is_sent.then_some(Interrupt {
            vector: bits(23, 16) as u8,
            delivery: delivery(bits(7, 5).into()),
            logical: bits(2, 2) == 1,
            destination: if extended { destination } else { bits(47, 40) },
            format: format(extended),
        })
    }

    /// Who may use an entry: fields that count.
    fn sources(raw: u128) -> (u128, u128) {
        match raw >> 82 & 3 {
            0 => (0, 0),
            1 => (1, raw >> 64 & 0x3_ffff),
            kind => (kind, raw >> 64 & 0xffff),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn a_copy_means_what_the_entry_means(raw in raw(), extended: bool, cells in cells()) {
            let (copy, verdict) = copy(raw, extended, &cells);
            match sent(raw, extended) {
                Some(interrupt) => {
                    agrees(&interrupt, &cells)?;
                    prop_assert_eq!(verdict, interrupt.check(&cells));
                    prop_assert_eq!(copy & 1 == 1, verdict.is_ok());
                }
                None => prop_assert_eq!(copy & 1, 0),
            }
            if copy & 1 == 0 {
                prop_assert_eq!(copy, raw & 0b10);
                let is_absent = raw & 1 == 0;
                prop_assert_eq!(verdict.is_ok(), is_absent);
            } else {
                // All that counts is there, and nothing else.
                prop_assert_eq!(sent(copy, extended), sent(raw, extended));
                prop_assert_eq!(copy as u64, raw as u64);
                prop_assert_eq!(sources(copy), sources(raw));
                prop_assert_eq!(copy & !raw, 0);
                let entry = Irte::decode(copy, extended).expect("well-formed").expect("present");
                prop_assert_eq!(entry.encode(extended), copy);
            }
        }
    }

    /// What Linux wrote for an interrupt of a device, seen in QEMU.
    #[test]
    fn an_entry_of_linux() {
        let raw = 0x0004_0008_u128 << 64 | 0x8_0021_000d;
        let entry = Irte::decode(raw, true).expect("well-formed").expect("present");
        assert_eq!(entry.source, Source::Device(Requester(0x0008), 0));
        assert_eq!((entry.interrupt.vector, entry.interrupt.destination), (0x21, 8));
        assert!(entry.interrupt.logical && entry.hint && !entry.level);
        assert_eq!(entry.encode(true), raw);
    }
}
