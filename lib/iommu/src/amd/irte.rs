// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of interrupt-remapping tables: 32 bits (IOMMU 2.2.5.1), or 128 bits (IOMMU 2.2.5.2).
//! Each device has a table of its own, and uses the entry whose number is in bits 10..0 of its
//! message's data.

use crtos_partition::icr::Delivery;

use crate::interrupt::{self, Cpus, Interrupt, Refused, format};
use crate::{bit, field, flag};

/// An entry for interrupts that are remapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Irte {
    /// What the unit sends.
    pub interrupt: Interrupt,
    /// Faults are not reported.
    pub silent: bool,
    /// The device gets the end of the interrupt.
    pub wants_end: bool,
}

/// Which entries a unit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// 32 bits.
    Short,
    /// 128 bits.
    Long {
        /// Destinations have 32 bits, not 8.
        extended: bool,
    },
}

impl Form {
    /// Bytes of an entry.
    pub fn size(self) -> u64 {
        if self == Self::Short { 4 } else { 16 }
    }

    fn is_extended(self) -> bool {
        self == Self::Long { extended: true }
    }
}

impl Irte {
    /// From an entry; `None` if it is not in use. Reserved bits do not count, and no copy has any.
    pub fn decode(raw: u128, form: Form) -> Result<Option<Self>, Refused> {
        let (low, high) = (raw as u64, (raw >> 64) as u64);
        if !bit(low, 0) {
            return Ok(None);
        }
        if bit(low, 7) {
            // With 32 bits it is reserved.
            return Err(if form == Form::Short { Refused::Malformed } else { Refused::Posted });
        }
        let (vector, destination) = match form {
            Form::Short => (field(low, 16, 8), field(low, 8, 8)),
            Form::Long { .. } => (field(high, 0, 8), field(low, 8, 24) | field(high, 56, 8) << 24),
        };
        if !form.is_extended() && destination > 0xff {
            return Err(Refused::Malformed);
        }
        Ok(Some(Self {
            interrupt: Interrupt {
                vector: vector as u8,
                delivery: match field(low, 2, 3) {
                    0 => Delivery::Fixed,
                    1 => Delivery::LowestPriority,
                    _ => Delivery::Other,
                },
                logical: bit(low, 6),
                destination: destination as u32,
                format: format(form.is_extended()),
            },
            silent: bit(low, 1),
            wants_end: bit(low, 5),
        }))
    }

    /// To an entry. The delivery mode is fixed or lowest priority.
    pub fn encode(&self, form: Form) -> u128 {
        let Interrupt { vector, delivery, logical, destination, .. } = self.interrupt;
        let (vector, destination) = (u64::from(vector), u64::from(destination));
        let low = 1
            | flag(self.silent, 1)
            | flag(delivery == Delivery::LowestPriority, 2)
            | flag(self.wants_end, 5)
            | flag(logical, 6);
        match form {
            Form::Short => (low | field(destination, 0, 8) << 8 | vector << 16).into(),
            Form::Long { .. } => {
                let high = vector | field(destination, 24, 8) << 56;
                u128::from(high) << 64 | u128::from(low | field(destination, 0, 24) << 8)
            }
        }
    }
}

/// The copy of an entry of Linux, and why it is a blocked one, if so.
pub fn copy(raw: u128, form: Form, cpus: &impl Cpus) -> (u128, Result<(), Refused>) {
    let decoded = Irte::decode(raw, form);
    let decoded = decoded.map(|entry| entry.map(|entry| (entry.interrupt, entry.encode(form))));
    interrupt::copy(raw, decoded, cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interrupt::tests::{agrees, cells};
    use proptest::prelude::*;

    const FORMS: [Form; 3] =
        [Form::Short, Form::Long { extended: false }, Form::Long { extended: true }];

    /// Any bits, but most of those that make an entry malformed are clear.
    fn raw() -> impl Strategy<Value = u128> {
        let low = prop_oneof![
            any::<u64>(),
            any::<u64>().prop_map(|low| low & 0x3f7f),
            any::<u64>().prop_map(|low| low & 0x3f67),
            any::<u64>().prop_map(|low| low & 0x83_ff67),
        ];
        let high = prop_oneof![1 => any::<u64>(), 3 => 0u64..1 << 8];
        (low, high, any::<bool>()).prop_map(|(low, high, used)| {
            u128::from(high) << 64 | u128::from(low & !1 | u64::from(used))
        })
    }

    /// What a unit does with an entry, as the figures of IOMMU 2.2.5 draw it; `None` if it refuses
    /// the interrupt, or posts it.
    fn sent(raw: u128, form: Form) -> Option<Interrupt> {
        let bits = |last: u32, first: u32| (raw >> first & ((1 << (last - first + 1)) - 1)) as u32;
        let (vector, destination) = match form {
            Form::Short => (bits(23, 16), bits(15, 8)),
            Form::Long { .. } => (bits(71, 64), bits(31, 8) | bits(127, 120) << 24),
        };
        let extended = form == Form::Long { extended: true };
        let is_sent = bits(0, 0) == 1 && bits(7, 7) == 0 && (extended || destination < 0x100);
        is_sent.then_some(Interrupt {
            vector: vector as u8,
            delivery: match bits(4, 2) {
                0 => Delivery::Fixed,
                1 => Delivery::LowestPriority,
                _ => Delivery::Other,
            },
            logical: bits(6, 6) == 1,
            destination,
            format: format(extended),
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn a_copy_means_what_the_entry_means(
            raw in raw(),
            form in prop::sample::select(&FORMS),
            cells in cells(),
        ) {
            let (copy, verdict) = copy(raw, form, &cells);
            match sent(raw, form) {
                Some(interrupt) => {
                    agrees(&interrupt, &cells)?;
                    prop_assert_eq!(verdict, interrupt.check(&cells));
                    prop_assert_eq!(copy & 1 == 1, verdict.is_ok());
                }
                None => prop_assert_eq!(copy & 1, 0),
            }
            if copy & 1 == 0 {
                prop_assert_eq!(copy, raw & 0b10);
                prop_assert_eq!(verdict.is_ok(), raw & 1 == 0);
            } else {
                // All that counts is there, and nothing else.
                prop_assert_eq!(sent(copy, form), sent(raw, form));
                prop_assert_eq!(copy as u8, raw as u8);
                prop_assert_eq!(copy & !raw, 0);
                prop_assert!(form != Form::Short || copy >> 24 == 0);
                prop_assert_eq!(copy >> 72 & 0xffff_ffff_ffff, 0);
                prop_assert_eq!(copy >> 32 & 0xffff_ffff, 0);
            }
        }
    }

    #[test]
    fn places_of_fields() {
        let long = Form::Long { extended: true };
        let raw = (0x12_u128 << 56 | 0x41) << 64 | 0x3456_7841;
        let entry = Irte::decode(raw, long).expect("well-formed").expect("in use");
        assert_eq!(entry.interrupt.destination, 0x1234_5678);
        assert_eq!((entry.interrupt.vector, entry.interrupt.logical), (0x41, true));
        let short = Irte::decode(0x0041_0701, Form::Short).expect("well-formed").expect("in use");
        assert_eq!((short.interrupt.vector, short.interrupt.destination), (0x41, 7));
        assert_eq!(Irte::decode(0x81, long), Err(Refused::Posted));
    }
}
