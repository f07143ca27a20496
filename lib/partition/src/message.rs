// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts that are stores of a device (Intel SDM vol. 3, 11.11; AMD APM vol. 2, 16.11).

use crtos_registers::apic::command;

use crate::icr::{Command, Delivery, Format};

/// First address of the MiB that a device stores to in order to interrupt.
pub const WINDOW: u32 = 0xfee0_0000;
const WINDOW_SHIFT: u32 = 20;
/// Where the destination begins.
pub const DESTINATION_SHIFT: u32 = 12;
/// The message is the number of an entry of the unit that remaps interrupts (Intel VT-d, 5.1.5.2).
/// On a machine without such a unit the bit means nothing.
pub const REMAPPED: u32 = 1 << 4;
/// The destination is logical.
pub const LOGICAL: u32 = 1 << 2;

/// A store of a device to the low 4 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where to.
    pub address: u32,
    /// What.
    pub data: u32,
}

impl Message {
    /// Tells whether a device may send it: the unit that remaps interrupts decides what it is
    /// (x2APIC mode takes such a unit), or it is an interrupt that takes no CPU away from its
    /// owner and of which `reaches_cell` denies. A store to memory is not harmless.
    pub fn is_harmless(self, x2apic: bool, reaches_cell: impl FnOnce(&Command) -> bool) -> bool {
        if !is_message(self.address.into()) {
            return false;
        }
        if x2apic && self.address & REMAPPED != 0 {
            return true;
        }
        let logical = if self.address & LOGICAL != 0 { command::LOGICAL } else { 0 };
        let format = if x2apic { Format::X2Apic } else { Format::XApic };
        let destination = (self.address >> DESTINATION_SHIFT) as u8;
        let low = self.data & !command::LOGICAL | logical;
        let command = Command::of_device(low, destination, format);
        let keeps_cpu = match command.delivery {
            Delivery::Fixed | Delivery::LowestPriority | Delivery::Nmi | Delivery::External => true,
            Delivery::Init | Delivery::StartUp | Delivery::Other => false,
        };
        keeps_cpu && !reaches_cell(&command)
    }
}

/// Tells whether a store to `address` is a message.
pub const fn is_message(address: u64) -> bool {
    address >> WINDOW_SHIFT == WINDOW as u64 >> WINDOW_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icr::Address;
    use crate::ids::ApicId;
    use proptest::prelude::*;

    fn cpu(id: u8) -> Address {
        let logical = 1u8.checked_shl(id.into()).unwrap_or(0);
        Address { id: ApicId(id.into()), logical, clustered: false }
    }

    proptest! {
        #[test]
        fn what_is_harmless_reaches_no_cell(
            low in prop_oneof![Just(0u32), Just(LOGICAL), 0u32..0x1000],
            destination in prop_oneof![any::<u8>(), 0u8..8, Just(0xff)],
            data in prop_oneof![any::<u32>(), 0u32..0x800],
            x2apic: bool,
            id in 0u8..20,
        ) {
            let address = WINDOW | u32::from(destination) << 12 | low;
            let harmless =
                Message { address, data }.is_harmless(x2apic, |command| command.names(cpu(id)));
            let named = match (destination, low & LOGICAL != 0) {
                (0xff, _) => true,
                (_, false) => destination == id,
                (mask, true) => {
                    id < if x2apic { 16 } else { 8 } && u16::from(mask) >> id & 1 == 1
                }
            };
            let remapped = x2apic && low & REMAPPED != 0;
            let expected = remapped || [0, 1, 4, 7].contains(&(data >> 8 & 7)) && !named;
            prop_assert_eq!(harmless, expected);
        }

        #[test]
        fn a_store_to_memory_is_refused(address: u32, data: u32, x2apic: bool) {
            prop_assume!(!(0xfee0_0000..0xfef0_0000).contains(&address));
            let harmless = Message { address, data }.is_harmless(x2apic, |_| false);
            prop_assert!(!harmless);
        }
    }
}
