// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PCI functions that the cell has (`crtos device add --cell`), for the crate `pci_types`.
//!
//! See [`crtos_pci`]. A function masters the bus by the cell's own addresses.

use crtos_abi::hypercall::HV_BUSY;
use pci_types::PciAddress;

use crate::{apic, hypercall};

/// Configuration space.
pub const SPACE: crtos_pci::Space = crtos_pci::Space(call);

/// Makes a call about devices, again while Linux makes one.
fn call(number: u64, arguments: [u64; 4]) -> i64 {
    loop {
        let result = hypercall::call_with(number, arguments);
        if result != HV_BUSY {
            return result;
        }
        core::hint::spin_loop();
    }
}

/// The functions of the cell.
pub fn functions() -> impl Iterator<Item = PciAddress> {
    SPACE.functions().map(|listed| crtos_pci::address(listed.number))
}

/// Has message `message` of a function interrupt this CPU by `vector`; returns the address and the
/// data that the function has to write, or `None` if that is not possible.
pub fn interrupt(address: PciAddress, message: u32, vector: u8) -> Option<(u32, u32)> {
    SPACE.interrupt(address, message, vector, apic::id())
}
