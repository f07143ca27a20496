// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions of a cell, for the crate `pci_types`.
//!
//! The hypervisor answers for configuration space: see [`crtos_abi::device`]. A function's memory
//! is at the addresses that its base address registers tell.
#![cfg_attr(not(test), no_std)]

use core::ops::RangeInclusive;

use crtos_abi::device::{
    BASE_ADDRESSES, LISTED_PLATFORM, LISTED_WIDTH_SHIFT, LISTED_WITHOUT_MEMORY,
};
use crtos_abi::hypercall::{HC_DEVICE_INTERRUPT, HC_DEVICE_LIST, HC_DEVICE_READ, HC_DEVICE_WRITE};
pub use pci_types;
use pci_types::{ConfigRegionAccess, PciAddress};

/// Who makes a call of the hypervisor about devices: number and arguments, its result. It is made
/// again while the hypervisor says [`crtos_abi::hypercall::HV_BUSY`], or not.
pub type Call = fn(number: u64, arguments: [u64; 4]) -> i64;

/// Configuration space.
#[derive(Clone, Copy, Debug)]
pub struct Space(pub Call);

/// A function or a platform device that the cell has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Bus, device and function in 16 bits, or the number of a platform device.
    pub number: u16,
    /// It is a platform device, which has no configuration space.
    pub platform: bool,
    /// It reaches the memory of the cell.
    pub reaches_memory: bool,
    /// How many bits the addresses have that it names, if it does not; otherwise 0.
    pub width: u32,
}

impl Listed {
    fn of(result: i64) -> Option<Self> {
        let width = u32::try_from(result >> LISTED_WIDTH_SHIFT).ok()?;
        let rest = result & ((1 << LISTED_WIDTH_SHIFT) - 1);
        let number = u16::try_from(rest & !(LISTED_PLATFORM | LISTED_WITHOUT_MEMORY)).ok()?;
        let (platform, confined) = (rest & LISTED_PLATFORM != 0, rest & LISTED_WITHOUT_MEMORY != 0);
        Some(Self { number, platform, reaches_memory: !confined, width })
    }
}

/// Bus, device and function in 16 bits.
pub fn number(address: PciAddress) -> u16 {
    let place = address.device() << 3 | address.function();
    u16::from_le_bytes([place, address.bus()])
}

/// The address of a function with that number.
pub fn address(number: u16) -> PciAddress {
    let [place, bus] = number.to_le_bytes();
    PciAddress::new(0, bus, place >> 3, place & 7)
}

impl ConfigRegionAccess for Space {
    unsafe fn read(&self, address: PciAddress, offset: u16) -> u32 {
        let result = (self.0)(HC_DEVICE_READ, [number(address).into(), offset.into(), 0, 0]);
        // What is not there reads as all ones.
        u32::try_from(result).unwrap_or(!0)
    }

    unsafe fn write(&self, address: PciAddress, offset: u16, value: u32) {
        let number = number(address).into();
        (self.0)(HC_DEVICE_WRITE, [number, offset.into(), value.into(), u32::MAX.into()]);
    }
}

impl Space {
    /// The functions and platform devices of the cell.
    pub fn devices(self) -> impl Iterator<Item = Listed> {
        let found = (0..).map(move |index| (self.0)(HC_DEVICE_LIST, [index, 0, 0, 0]));
        found.map_while(Listed::of)
    }

    /// The functions of the cell.
    pub fn functions(self) -> impl Iterator<Item = Listed> {
        self.devices().filter(|listed| !listed.platform)
    }

    /// Memory `index` of a platform device: where the cell sees it, and how many bytes it has;
    /// `None` if there is no such memory.
    pub fn platform_memory(self, number: u16, index: u8) -> Option<(u64, u64)> {
        const PAGE_BITS: u64 = 0xfff;
        let register = 4 * u64::from(index);
        let told = u64::try_from((self.0)(HC_DEVICE_READ, [number.into(), register, 0, 0])).ok()?;
        (told != 0).then(|| (told & !PAGE_BITS, (1 + (told & PAGE_BITS)) << 12))
    }

    /// Ports `index` of a platform device, the first and the last one; `None` if there are none.
    pub fn platform_ports(self, number: u16, index: u8) -> Option<RangeInclusive<u16>> {
        let register = 4 * (BASE_ADDRESSES as u64 + u64::from(index));
        let told = u64::try_from((self.0)(HC_DEVICE_READ, [number.into(), register, 0, 0])).ok()?;
        Some(told as u16..=(told >> 16) as u16).filter(|ports| told != 0 && !ports.is_empty())
    }

    /// Has message `message` of a function interrupt a CPU, by its APIC id, by `vector`; returns
    /// the address and the data that the function has to write, or `None` if that is not possible.
    pub fn interrupt(
        self,
        address: PciAddress,
        message: u32,
        vector: u8,
        apic: u32,
    ) -> Option<(u32, u32)> {
        let arguments = [number(address).into(), message.into(), vector.into(), apic.into()];
        let result = u64::try_from((self.0)(HC_DEVICE_INTERRUPT, arguments)).ok()?;
        Some((0xfee0_0000 | (result >> 32) as u32, result as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(number: u64, [first, second, third, fourth]: [u64; 4]) -> i64 {
        match (number, first) {
            (HC_DEVICE_LIST, 0) => 0x0310,
            (HC_DEVICE_LIST, 1) => 0x0311 | LISTED_WITHOUT_MEMORY | 39 << LISTED_WIDTH_SHIFT,
            (HC_DEVICE_LIST, 2) => 0xffff | LISTED_PLATFORM | LISTED_WITHOUT_MEMORY,
            (HC_DEVICE_READ, 0xffff) => {
                let told = [0xe000_0004, 0, 0, 0, 0, 0, 0x037f_0378, 0, 0x0001_0002];
                told.get((second / 4) as usize).copied().unwrap_or(0)
            }
            (HC_DEVICE_READ, 0x0310) => i64::from(u32::MAX - second as u32),
            (HC_DEVICE_INTERRUPT, 0x0310) => {
                assert_eq!((second, third, fourth), (5, 0x61, 3));
                0x10 << 32 | 5
            }
            _ => -1,
        }
    }

    #[test]
    fn functions_are_listed() {
        let all: Vec<_> = Space(answer).functions().collect();
        let [one, other] =
            [(0x0310, true, 0), (0x0311, false, 39)].map(|(number, reaches_memory, width)| {
                Listed { number, platform: false, reaches_memory, width }
            });
        assert_eq!(all, [one, other]);
        let address = address(0x0311);
        assert_eq!((address.bus(), address.device(), address.function()), (3, 2, 1));
        assert_eq!(number(address), 0x0311);
    }

    #[test]
    fn platform_devices_are_told_from_functions() {
        let other = Listed { number: 0xffff, platform: true, reaches_memory: false, width: 0 };
        assert_eq!(Space(answer).devices().last(), Some(other));
        assert_eq!(Space(answer).platform_memory(0xffff, 0), Some((0xe000_0000, 0x5000)));
        assert_eq!(Space(answer).platform_memory(0xffff, 1), None);
        let ports = [0, 1, 2].map(|index| Space(answer).platform_ports(0xffff, index));
        assert_eq!(ports, [Some(0x378..=0x37f), None, None]);
    }

    #[test]
    fn what_is_not_there_reads_as_ones() {
        // SAFETY: Nothing but this test is read.
        let read = |number| unsafe { Space(answer).read(address(number), 4) };
        assert_eq!(read(0x0310), u32::MAX - 4);
        assert_eq!(read(0x0312), u32::MAX);
    }

    #[test]
    fn a_message_has_an_address_and_data() {
        assert_eq!(Space(answer).interrupt(address(0x0310), 5, 0x61, 3), Some((0xfee0_0010, 5)));
        assert_eq!(Space(answer).interrupt(address(0x0312), 5, 0x61, 3), None);
    }
}
