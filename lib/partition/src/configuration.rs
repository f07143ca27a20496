// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI configuration space (PCI 3.0, 3.2.2.3; PCI Express 4.0, 7.2): which registers an access
//! touches.
//!
//! There are two ways: the register at port 0xCF8 takes an address, and ports 0xCFC to 0xCFF are
//! the four bytes there; or each function has a page of memory.

use core::ops::RangeInclusive;

use crtos_abi::PAGE_SIZE;
use crtos_abi::image::Configuration;

use crate::resets::Access;

/// The address register: four bytes, which are accessed together.
pub const ADDRESS: u16 = 0xcf8;
/// The registers at that address: four bytes.
pub const DATA: RangeInclusive<u16> = 0xcfc..=0xcff;
/// All ports that are looked at.
pub const PORTS: RangeInclusive<u16> = ADDRESS..=*DATA.end();

/// In the address register: the data ports are registers of configuration space.
pub const ENABLE: u32 = 1 << 31;
/// Where the function begins there.
pub const FUNCTION_SHIFT: u32 = 8;
/// The register.
const REGISTER: u32 = 0xff;
/// Bits of it that are zero in hardware.
const UNALIGNED: u32 = 3;
/// Where AMD's processors have the upper bits of the register, if that is switched on, and which.
const UPPER_SHIFT: u32 = 16;
const UPPER: u32 = 0xf00;

/// Registers of a function that an access touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touched {
    function: u16,
    registers: RangeInclusive<u32>,
    /// Where they may be as well.
    or: u32,
}

impl Touched {
    /// By an access to ports, while the address register is `address`; `None` if it touches none.
    ///
    /// Emulators take all bits of the address for what they say, also those that are zero in
    /// hardware, and let an access reach beyond the four bytes.
    pub fn by_ports(address: u32, access: &Access) -> Option<Self> {
        let ports = access.ports();
        let first = *ports.start().max(DATA.start());
        let last = *ports.end().min(DATA.end());
        if first > last || address & ENABLE == 0 {
            return None;
        }
        let aligned = address & REGISTER & !UNALIGNED;
        let bytes = match address & UNALIGNED {
            0 => u32::from(first - DATA.start())..=u32::from(last - DATA.start()),
            _ => 0..=2 * UNALIGNED,
        };
        Some(Self {
            function: (address >> FUNCTION_SHIFT) as u16,
            registers: aligned + bytes.start()..=aligned + bytes.end(),
            or: address >> UPPER_SHIFT & UPPER,
        })
    }

    /// By an access to `size` bytes of memory, `offset` bytes from the page of the first function
    /// on. `None` if no function has its page there.
    pub fn by_memory(offset: u64, size: u64) -> Option<Self> {
        let function = u16::try_from(offset / PAGE_SIZE).ok()?;
        let register = (offset % PAGE_SIZE) as u32;
        Some(Self { function, registers: register..=register + size as u32 - 1, or: 0 })
    }

    /// Tells whether it may touch one of these registers.
    pub fn meets(&self, listed: &Configuration) -> bool {
        let (first, last) = (u32::from(listed.first), u32::from(listed.last));
        let meets =
            |upper| self.registers.start() + upper <= last && first <= self.registers.end() + upper;
        self.function == listed.function && (meets(0) || meets(self.or))
    }
}

/// Bytes of the pages of all functions of a bus, where they are memory.
pub const BUS_SIZE: u64 = 256 * PAGE_SIZE;

/// Where the page of a function lies, behind that of the first one.
pub fn page(function: u16) -> u64 {
    u64::from(function) * PAGE_SIZE
}

/// Finds the capability `id` of a function (PCI 3.0, 6.7), of which `read` reads four bytes.
pub fn capability(id: u8, mut read: impl FnMut(u8) -> u32) -> Option<u8> {
    const COMMAND_STATUS: u8 = 0x04;
    const HAS_CAPABILITIES: u32 = 1 << 20;
    const POINTER: u8 = 0x34;
    /// As many as there is room for.
    const MOST: usize = 48;
    let status = read(COMMAND_STATUS);
    if status == !0 || status & HAS_CAPABILITIES == 0 {
        return None;
    }
    let mut next = read(POINTER) as u8;
    for _ in 0..MOST {
        let place = next & !3;
        if place < 0x40 {
            return None;
        }
        let header = read(place);
        if header as u8 == id {
            return Some(place);
        }
        next = (header >> 8) as u8;
    }
    None
}

/// The capability of messages (PCI 3.0, 6.8.1).
pub mod messages {
    /// Its number.
    pub const ID: u8 = 0x05;
    /// In its first four bytes: it sends messages.
    pub const ENABLE: u32 = 1 << 16;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(function: u16, first: u16, last: u16) -> Configuration {
        Configuration { function, first, last, present: 1 }
    }

    fn write(first: u16, width: u16) -> Access {
        Access { first, width, written: Some(0) }
    }

    fn touches(address: u32, access: Access, listed: &Configuration) -> bool {
        Touched::by_ports(address, &access).is_some_and(|touched| touched.meets(listed))
    }

    #[test]
    fn accesses_by_ports() {
        let bridge = listed(0, 0x60, 0x67);
        assert!(touches(0x8000_0060, write(0xcfc, 4), &bridge));
        assert!(touches(0x8000_0064, write(0xcff, 1), &bridge));
        assert!(!touches(0x8000_0068, write(0xcfc, 4), &bridge));
        assert!(!touches(0x8000_005c, write(0xcfc, 4), &bridge));
        assert!(!touches(0x8000_0160, write(0xcfc, 4), &bridge));
        assert!(!touches(0x8001_0060, write(0xcfc, 4), &bridge));
        assert!(!touches(0x0000_0060, write(0xcfc, 4), &bridge));
        assert!(!touches(0x8000_0060, write(0xcf8, 4), &bridge));
        assert!(!touches(0x8000_0060, write(0xd00, 4), &bridge));
        // Across the ends of the data ports.
        assert!(touches(0x8000_0060, write(0xcfa, 4), &bridge));
        let last = listed(0, 0x63, 0x63);
        assert!(touches(0x8000_0060, write(0xcff, 4), &last));
        assert!(!touches(0x8000_0060, write(0xcfa, 4), &last));
        // Bits that are zero in hardware.
        assert!(touches(0x8000_005f, write(0xcfc, 4), &bridge));
        assert!(touches(0x8000_005d, write(0xcff, 4), &bridge));
    }

    #[test]
    fn upper_bits_of_the_register_count_or_not() {
        let function = listed(0x10, 0, 0xfff);
        assert!(touches(0x8100_1000, write(0xcfc, 1), &function));
        assert!(touches(0x8100_1040, write(0xcfc, 1), &listed(0x10, 0x140, 0x140)));
        assert!(touches(0x8100_1040, write(0xcfc, 1), &listed(0x10, 0x40, 0x40)));
        assert!(!touches(0x8100_1040, write(0xcfc, 1), &listed(0x10, 0x240, 0x240)));
    }

    #[test]
    fn a_function_has_a_page() {
        let function = listed(0x0110, 0x10, 0xff);
        let touches =
            |offset, size| Touched::by_memory(offset, size).is_some_and(|it| it.meets(&function));
        assert_eq!(page(0x0110), 0x11_0000);
        assert!(touches(0x11_0010, 1) && touches(0x11_00f8, 8) && touches(0x11_000c, 8));
        assert!(!touches(0x11_0100, 8) && !touches(0x11_0008, 8) && !touches(0x10_f010, 8));
        assert_eq!(Touched::by_memory(0x1000_0000, 1), None);
    }

    #[test]
    fn capabilities_are_a_list() {
        let mut space = [0u32; 64];
        let find =
            |space: &[u32; 64], id| capability(id, |register| space[usize::from(register / 4)]);
        (space[13], space[16], space[20]) = (0x40, 0x5000 | 0x0f, 0x0080_0005);
        assert_eq!(find(&space, messages::ID), None);
        space[1] = 1 << 20;
        assert_eq!(find(&space, messages::ID), Some(0x50));
        assert_eq!(find(&space, 0x0f), Some(0x40));
        assert_eq!(find(&space, 0x11), None);
        // One that has no end, and a function that is not there.
        space[20] = 0x4005;
        assert_eq!(find(&space, 0x11), None);
        assert_eq!(capability(messages::ID, |_| !0), None);
    }

    proptest! {
        /// Each byte that hardware or QEMU would write counts as touched.
        #[test]
        fn no_byte_is_missed(
            address: u32,
            first in 0xcf4u16..0xd04,
            width in prop::sample::select(&[1u16, 2, 4][..]),
            extended: bool,
        ) {
            let access = write(first, width);
            let upper = if extended { address >> 16 & 0xf00 } else { 0 };
            for port in access.ports().filter(|port| (0xcfc..=0xcff).contains(port)) {
                let register = ((address & 0xfc | upper) + u32::from(port - 0xcfc)) as u16;
                let is_on = address & 1 << 31 != 0;
                let function = (address >> 8) as u16;
                let listed = listed(function, register, register);
                prop_assert_eq!(touches(address, access, &listed), is_on);
            }
            if (0xcfc..=0xcff).contains(&first) && address & 1 << 31 != 0 {
                let start = address & 0xff | u32::from(first & 3);
                let last = (0xcff - first).min(width - 1);
                for register in (start..=start + u32::from(last)).map(|register| register as u16) {
                    let function = (address >> 8) as u16;
                    prop_assert!(touches(address, access, &listed(function, register, register)));
                }
            }
        }

        /// And nothing does that is further away than that.
        #[test]
        fn others_are_free(
            address: u32,
            first in 0xcf4u16..0xd04,
            width in prop::sample::select(&[1u16, 2, 4][..]),
            function: u16,
            register in 0u16..0x1000,
        ) {
            let listed = listed(function, register, register);
            let found = touches(address, write(first, width), &listed);
            let low = address & 0xfc;
            let near = |upper: u32| (low + upper..low + upper + 8).contains(&register.into());
            let is_near = near(0) || near(address >> 16 & 0xf00);
            prop_assert!(!found || function == (address >> 8) as u16 && is_near);
        }
    }
}
