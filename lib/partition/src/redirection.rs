// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries of an I/O APIC (Intel 82093AA, 3.2.4; Intel I/O Controller Hub 9, 13.5.7): each says
//! which interrupt a pin raises, and where. The interrupt is a message.

use crtos_registers::apic::command;

use crate::icr::Command;
use crate::message::{self, Message};

/// Nothing is raised.
const MASKED: u64 = 1 << 16;
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

    /// Returns its lower half.
    pub fn lower(self) -> u32 {
        self.0 as u32
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

    fn upper(entry: Redirection) -> u32 {
        (entry.0 >> 32) as u32
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
            prop_assert_eq!((lower.lower(), upper(lower)), (half, upper(entry)));
            prop_assert_eq!((changed.lower(), upper(changed)), (entry.lower(), half));
            prop_assert!(entry.masked().is_harmless(false, |_| true));
        }
    }

    #[test]
    fn a_remapped_entry_is_left_to_the_unit_that_remaps() {
        let entry = Redirection(REMAPPED | 3 << DESTINATION_SHIFT);
        assert!(entry.is_harmless(true, |_| true));
        assert!(!entry.is_harmless(false, |_| true));
    }
}
