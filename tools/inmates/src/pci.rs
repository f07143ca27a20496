// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PCI functions that the cell has (`crtos device add --cell`), for the crate `pci_types`.
//!
//! The hypervisor answers for configuration space: see [`crtos_abi::device`]. A function's memory
//! is at the addresses that its base address registers tell; it masters the bus by the cell's own
//! addresses.

use crtos_abi::hypercall::{
    HC_DEVICE_INTERRUPT, HC_DEVICE_LIST, HC_DEVICE_READ, HC_DEVICE_WRITE, HV_BUSY,
};
use pci_types::{ConfigRegionAccess, PciAddress};

use crate::{apic, hypercall};

/// Configuration space.
#[derive(Clone, Copy, Debug)]
pub struct Space;

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

/// Bus, device and function in 16 bits.
fn number(address: PciAddress) -> u64 {
    u64::from(address.bus()) << 8 | u64::from(address.device()) << 3 | u64::from(address.function())
}

impl ConfigRegionAccess for Space {
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        let result = call(HC_DEVICE_READ, [number(address), offset.into(), 0, 0]);
        // What is not there reads as all ones.
        u32::try_from(result).unwrap_or(!0)
    }

    unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
        let arguments = [number(address), offset.into(), value.into(), u32::MAX.into()];
        call(HC_DEVICE_WRITE, arguments);
    }
}

/// The functions of the cell.
pub fn functions() -> impl Iterator<Item = PciAddress> {
    let found = (0..).map(|index| call(HC_DEVICE_LIST, [index, 0, 0, 0]));
    found.map_while(|result| u16::try_from(result).ok()).map(|number| {
        let [function, bus] = number.to_le_bytes();
        PciAddress::new(0, bus, function >> 3, function & 7)
    })
}

/// Has message `message` of a function interrupt this CPU by `vector`; returns the address and the
/// data that the function has to write, or `None` if that is not possible.
pub fn interrupt(address: PciAddress, message: u32, vector: u8) -> Option<(u32, u32)> {
    let arguments = [number(address), message.into(), vector.into(), apic::id().into()];
    let result = u64::try_from(call(HC_DEVICE_INTERRUPT, arguments)).ok()?;
    Some((0xfee0_0000 | (result >> 32) as u32, result as u32))
}
