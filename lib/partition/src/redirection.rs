// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of an I/O APIC (Intel 82093AA, 3.2.4; Intel I/O Controller Hub 9, 13.5.7): each says
//! which interrupt a pin raises, and where. The interrupt is a message.

use crtos_registers::apic::command;

use crate::icr::Command;
use crate::ids::ApicId;
use crate::message::{self, Message};

/// Nothing is raised.
const MASKED: u64 = 1 << 16;
/// The pin is triggered by a level.
const LEVEL: u64 = 1 << 15;
/// It is active when it is low.
const LOW: u64 = 1 << 13;
/// The destination is the number of an entry of the unit that remaps interrupts (Intel VT-d,
/// 5.1.5.1). On a machine without such a unit the bit means nothing.
const REMAPPED: u64 = 1 << 48;
/// Where the destination begins.
const DESTINATION_SHIFT: u32 = 56;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirection(pub u64);

impl Redirection {
    /// Returns the entry with its upper or lower half replaced.
    pub fn with_half(self, upper: bool, half: u32) -> Self {
        let shift = if upper { 32 } else { 0 };
        Self(self.0 & !(0xffff_ffff << shift) | u64::from(half) << shift)
    }

    /// Returns the entry that raises nothing.
    pub fn masked(self) -> Self {
        Self(self.0 | MASKED)
    }

    /// Returns the entry that raises nothing, of a pin that is triggered as this one's.
    pub fn of_same_pin(self) -> Self {
        Self(self.0 & (LEVEL | LOW) | MASKED)
    }

    /// Tells whether its pin is triggered by a level.
    pub fn is_level(self) -> bool {
        self.0 & LEVEL != 0
    }

    /// The entry for the same pin that interrupts a CPU by itself; `None` if it cannot name that.
    pub fn to_cpu(self, cpu: ApicId, vector: u8) -> Option<Self> {
        let destination = u64::from(u8::try_from(cpu.0).ok().filter(|id| *id != u8::MAX)?);
        let pin = self.of_same_pin().0 & !MASKED;
        Some(Self(pin | u64::from(vector) | destination << DESTINATION_SHIFT))
    }

    /// The entry for the same pin whose interrupt is entry `number` of a VT-d unit's table. The
    /// vector is that of the unit's entry: the end of an interrupt by a level names it.
    pub fn by_vtd(self, number: u16, vector: u8) -> Self {
        let (low, high) = (u64::from(number) & 0x7fff, u64::from(number >> 15));
        let pin = self.of_same_pin().0 & !MASKED;
        Self(pin | u64::from(vector) | high << 11 | REMAPPED | low << 49)
    }

    /// The number of the entry of a VT-d unit's table that it names, if it does.
    pub fn vtd_number(self) -> Option<u16> {
        let number = self.0 >> 49 & 0x7fff | (self.0 >> 11 & 1) << 15;
        (self.0 & REMAPPED != 0).then_some(number as u16)
    }

    /// The entry for the same pin whose interrupt is entry `number`, of 11 bits, of a table of an
    /// AMD-Vi unit.
    pub fn by_amd(self, number: u16) -> Self {
        Self(self.of_same_pin().0 & !MASKED | u64::from(number & 0x7ff))
    }

    /// The number of the entry that it names there.
    pub fn amd_number(self) -> u16 {
        self.0 as u16 & 0x7ff
    }

    /// Returns its lower half.
    pub fn lower(self) -> u32 {
        self.0 as u32
    }

    /// Returns its upper half.
    pub fn upper(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Tells whether it can be used: it raises nothing, or what a device may send, for which see
    /// [`Message::is_harmless`].
    pub fn is_harmless(self, x2apic: bool, reaches_cell: impl FnOnce(&Command) -> bool) -> bool {
        self.0 & MASKED != 0 || self.message().is_harmless(x2apic, reaches_cell)
    }

    fn message(self) -> Message {
        let destination = (self.0 >> DESTINATION_SHIFT) as u32;
        let mut address = message::WINDOW | destination << message::DESTINATION_SHIFT;
        if self.lower() & command::LOGICAL != 0 {
            address |= message::LOGICAL;
        }
        if self.0 & REMAPPED != 0 {
            address |= message::REMAPPED;
        }
        Message { address, data: self.lower() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icr::Address;
    use crate::ids::ApicId;
    use proptest::prelude::*;

    /// A CPU of a cell, in flat mode where that matters.
    fn cpu(id: u8) -> Address {
        let logical = 1u8.checked_shl(id.into()).unwrap_or(0);
        Address { id: ApicId(id.into()), logical, clustered: false }
    }

    /// What an interrupt controller does with an entry: the mode, and whether it is for a CPU.
    fn raised(entry: u64, x2apic: bool, id: u8) -> Option<(u64, bool)> {
        if entry >> 16 & 1 == 1 {
            return None;
        }
        let (destination, logical) = ((entry >> 56) as u8, entry >> 11 & 1 == 1);
        let named = match (destination, logical) {
            (0xff, _) => true,
            (_, false) => destination == id,
            // Cluster 0, of which only 8 can be named; or flat mode.
            (mask, true) => id < if x2apic { 16 } else { 8 } && u16::from(mask) >> id & 1 == 1,
        };
        Some((entry >> 8 & 7, named))
    }

    proptest! {
        #[test]
        fn what_is_harmless_reaches_no_cell(
            low in prop_oneof![any::<u32>(), 0u32..0x1000],
            destination in prop_oneof![any::<u8>(), 0u8..8, Just(0xff)],
            x2apic: bool,
            id in 0u8..20,
        ) {
            let entry = u64::from(destination) << 56 | u64::from(low);
            let harmless =
                Redirection(entry).is_harmless(x2apic, |command| command.names(cpu(id)));
            let expected = match raised(entry, x2apic, id) {
                None => true,
                Some((mode, named)) => [0, 1, 4, 7].contains(&mode) && !named,
            };
            prop_assert_eq!(harmless, expected);
        }

        #[test]
        fn halves_make_an_entry(entry: u64, half: u32) {
            let entry = Redirection(entry);
            let (lower, changed) = (entry.with_half(false, half), entry.with_half(true, half));
            prop_assert_eq!((lower.lower(), lower.upper()), (half, entry.upper()));
            prop_assert_eq!((changed.lower(), changed.upper()), (entry.lower(), half));
            prop_assert!(entry.masked().is_harmless(false, |_| true));
        }
    }

    proptest! {
        /// Whatever Linux had there, the entry raises what the cell asked for, in the pin's way.
        #[test]
        fn an_entry_of_a_cell_is_what_the_cell_asked_for(
            linux: u64,
            vector in 32u8..,
            id in 0u32..300,
            number: u16,
        ) {
            let linux = Redirection(linux);
            let way = |entry: Redirection| (entry.0 >> 13 & 1, entry.0 >> 15 & 1, entry.is_level());
            match linux.to_cpu(ApicId(id), vector) {
                Some(entry) => {
                    prop_assert_eq!(way(entry), way(linux));
                    prop_assert_eq!(entry.lower() & !0xa0ff, 0);
                    prop_assert_eq!((entry.lower() as u8, entry.upper()), (vector, id << 24));
                    prop_assert_eq!(entry.vtd_number(), None);
                }
                None => prop_assert!(id >= 255),
            }
            let entry = linux.by_vtd(number, vector);
            prop_assert_eq!((way(entry), entry.lower() as u8), (way(linux), vector));
            prop_assert_eq!(entry.vtd_number(), Some(number));
            prop_assert_eq!(entry.lower() & !0xa8ff, 0);
            let entry = linux.by_amd(number);
            prop_assert_eq!((way(entry), entry.amd_number()), (way(linux), number & 0x7ff));
            prop_assert_eq!((entry.lower() & !0xa7ff, entry.upper()), (0, 0));
            let masked = linux.of_same_pin();
            prop_assert!(masked.is_harmless(false, |_| true) && way(masked) == way(linux));
        }
    }

    #[test]
    fn a_remapped_entry_is_left_to_the_unit_that_remaps() {
        let entry = Redirection(REMAPPED | 3 << DESTINATION_SHIFT);
        assert!(entry.is_harmless(true, |_| true));
        assert!(!entry.is_harmless(false, |_| true));
    }
}
