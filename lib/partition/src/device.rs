// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device of a cell: what it has of the machine; and of a PCI function (PCI 3.0, 6) what the cell
//! reads and writes in its configuration space.
//!
//! Where the function's registers lie is not the cell's to say: it could have them answer in place
//! of another's. So it sees base address registers that tell of its own addresses. It may master
//! the bus and send any message, since an IOMMU confines both.

use core::ops::RangeInclusive;

use crtos_abi::cell::PortRange;
use crtos_abi::device::{
    BASE_ADDRESSES, DEVICE_MEMORY, DEVICE_MEMORY_END, DEVICE_PIN, DEVICE_PLATFORM,
    DEVICE_WITHOUT_MEMORY, DeviceConfig, DeviceMemory, MAX_BRIDGES, MAX_DEVICE_MEMORY,
};
use crtos_abi::image::Configuration;
use crtos_abi::{PAGE_SIZE, cell};

use crate::address::{GuestAddr, PhysAddr};
use crate::configuration::{capability, messages};
use crate::error::Refusal;
use crate::permissions::ports_meet;

/// Register of configuration space: command below, status above.
pub const COMMAND: u8 = 0x04;

/// Other ones.
mod register {
    /// The kind of the registers that follow in bits 22..16: 0 but for bridges.
    pub const HEADER: u8 = 0x0c;
    /// The first base address.
    pub const BASE_ADDRESS: u8 = 0x10;
    /// The base address of the expansion ROM.
    pub const ROM: u8 = 0x30;
    /// Behind the last base address.
    pub const BASE_ADDRESS_END: u8 = BASE_ADDRESS + 4 * super::BASE_ADDRESSES as u8;
}

/// I/O space, memory space, bus master.
const COMMAND_BITS: u32 = 0x0007;
/// Of the command register: the interrupt pin is off. It stays so where others may have its line.
pub const PIN_OFF: u32 = 1 << 10;
/// Bits of the status that are cleared by writing ones.
const ERRORS: u32 = 0xf900_0000;
/// Of the command register: the function masters the bus.
pub const BUS_MASTER: u32 = 1 << 2;

/// Bits of a base address register (PCI 3.0, 6.2.5.1).
mod base_address {
    pub const PORTS: u32 = 1 << 0;
    /// Of memory: the type and whether it may be prefetched.
    pub const FLAGS: u32 = 0xf;
    /// The type: the next register has the upper half.
    pub const WIDE: u32 = 2 << 1;
    pub const TYPE: u32 = 3 << 1;
}

/// The capability of message tables (PCI 3.0, 6.8.2).
const MESSAGE_TABLE: u8 = 0x11;
/// In its first four bytes: enabled, and all masked.
const TABLE_CONTROL: u32 = 0xc000_0000;
/// In the first four bytes of that of messages: enabled, and how many.
const MESSAGES_CONTROL: u32 = 0x0071_0000;
/// Address of 64 bits.
const WIDE_MESSAGES: u32 = 1 << 23;
/// Messages can be masked one by one.
const MASKED_MESSAGES: u32 = 1 << 24;

/// What a base address register is to the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BaseAddress {
    /// Nothing, or the upper half of the one before it.
    None,
    /// The upper half of the memory's address of the register before it.
    Upper,
    /// Memory, with the register's flags.
    Memory(DeviceMemory, u32),
    /// Ports.
    Ports(PortRange),
}

/// A function or a platform device of a cell.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    /// Bus, device and function number; of a platform device its number.
    pub function: u16,
    /// It is a platform device: it has no configuration space, and masters no bus.
    pub platform: bool,
    /// It reaches the memory of its cell.
    pub reaches_memory: bool,
    /// The cell has the line of its interrupt pin.
    pin: bool,
    bridges: [Option<u16>; MAX_BRIDGES],
    base_addresses: [BaseAddress; BASE_ADDRESSES],
    /// A bit for each base address register that reads as its size.
    sizing: u8,
    /// Where the capability of messages is, and how many bytes of it are written.
    messages: Option<(u8, u8)>,
    /// Where that of message tables is.
    message_table: Option<u8>,
}

impl Device {
    /// Checks what Linux says of a function, of which `read` reads four bytes of configuration
    /// space. Whose the memory and the ports are is not looked at.
    pub fn check(config: &DeviceConfig, mut read: impl FnMut(u8) -> u32) -> Result<Self, Refusal> {
        let bridges = config.bridges.get(..config.bridge_count.into()).ok_or(Refusal::Invalid)?;
        let platform = config.flags & DEVICE_PLATFORM != 0;
        if config.flags & !(DEVICE_WITHOUT_MEMORY | DEVICE_PLATFORM | DEVICE_PIN) != 0
            || platform && config.bridge_count != 0
        {
            return Err(Refusal::Invalid);
        }
        let mut read = |register| if platform { 0 } else { read(register) };
        // By a bridge a cell could take devices of others away.
        if read(register::HEADER) >> 16 & 0x7f != 0 {
            return Err(Refusal::Invalid);
        }
        let mut device = Self {
            function: config.function,
            platform,
            reaches_memory: config.flags & DEVICE_WITHOUT_MEMORY == 0,
            pin: config.flags & DEVICE_PIN != 0,
            bridges: [None; MAX_BRIDGES],
            base_addresses: [BaseAddress::None; BASE_ADDRESSES],
            sizing: 0,
            messages: None,
            message_table: capability(MESSAGE_TABLE, &mut read),
        };
        for (place, bridge) in device.bridges.iter_mut().zip(bridges) {
            *place = Some(*bridge);
        }
        if let Some(place) = capability(messages::ID, &mut read) {
            let control = read(place);
            let upper = if control & WIDE_MESSAGES != 0 { 4 } else { 0 };
            let masks = if control & MASKED_MESSAGES != 0 { 4 } else { 0 };
            device.messages = Some((place, 12 + upper + masks));
        }
        let mut index = 0;
        while index < BASE_ADDRESSES {
            let raw = read(register::BASE_ADDRESS + 4 * index as u8);
            let (memory, ports) = (config.memory[index], config.ports[index]);
            let wide = raw & (base_address::PORTS | base_address::TYPE) == base_address::WIDE;
            let upper = (wide && index + 1 < BASE_ADDRESSES)
                .then(|| read(register::BASE_ADDRESS + 4 * index as u8 + 4));
            device.base_addresses[index] = match (memory.size, ports.last) {
                (0, 0) => BaseAddress::None,
                (0, _) => {
                    let first = raw & base_address::PORTS != 0 && ports.first as u32 == raw & !3;
                    if !(first || platform) || ports.last < ports.first || ports.flags != 0 {
                        return Err(Refusal::Invalid);
                    }
                    BaseAddress::Ports(PortRange { flags: cell::PORT_EXCLUSIVE, ..ports })
                }
                _ => {
                    let low = u64::from(raw & !base_address::FLAGS);
                    let address = low | u64::from(upper.unwrap_or(0)) << 32;
                    let is_memory = raw & base_address::PORTS == 0 && memory.physical == address;
                    if !(is_memory || platform) || !is_sound(&memory, platform) {
                        return Err(Refusal::Invalid);
                    }
                    BaseAddress::Memory(memory, raw & base_address::FLAGS)
                }
            };
            index += 1;
            if upper.is_some() {
                device.base_addresses[index] = BaseAddress::Upper;
                index += 1;
            }
        }
        let total: u64 = device.memory().map(|memory| pages(&memory)).sum();
        if total > MAX_DEVICE_MEMORY { Err(Refusal::Invalid) } else { Ok(device) }
    }

    /// Its memory, in whole pages.
    pub fn memory(&self) -> impl Iterator<Item = DeviceMemory> {
        self.base_addresses.iter().filter_map(|base_address| match base_address {
            BaseAddress::Memory(memory, _) => Some(DeviceMemory { size: pages(memory), ..*memory }),
            _ => None,
        })
    }

    /// The pages of its memory: where the cell sees each, and where it lies in the machine.
    pub fn pages(&self) -> impl Iterator<Item = (GuestAddr, PhysAddr)> {
        self.memory().flat_map(|memory| {
            (0..memory.size).step_by(PAGE_SIZE as usize).map(move |offset| {
                let (to, from) = (memory.cell_address + offset, memory.physical + offset);
                (GuestAddr::new(to), PhysAddr::new(from))
            })
        })
    }

    /// Its ports, which the cell has alone.
    pub fn ports(&self) -> impl Iterator<Item = RangeInclusive<u16>> {
        self.base_addresses.iter().filter_map(|base_address| match base_address {
            BaseAddress::Ports(ports) => Some(ports.first..=ports.last),
            _ => None,
        })
    }

    /// Tells whether it has a part of these addresses of the machine.
    pub fn has_memory_of(&self, start: PhysAddr, size: u64) -> bool {
        self.memory().any(|memory| {
            memory.physical < start.get().saturating_add(size)
                && start.get() < memory.physical + memory.size
        })
    }

    /// Tells whether this and `other`, of the same cell or not, cannot exist together: it is the
    /// same function, or they have a port or memory in common, or addresses in the same cell, or
    /// only one of that cell reaches its memory.
    pub fn clashes(&self, other: &Self, same_cell: bool) -> bool {
        let meet = |one: u64, size: u64, other: u64, other_size: u64| {
            one < other + other_size && other < one + size
        };
        let memory = self.memory().any(|one| {
            other.memory().any(|other| {
                meet(one.physical, one.size, other.physical, other.size)
                    || same_cell && meet(one.cell_address, one.size, other.cell_address, other.size)
            })
        });
        let ports = self.ports().any(|one| other.ports().any(|other| ports_meet(&one, &other)));
        let reach = same_cell && self.reaches_memory != other.reaches_memory;
        self.function == other.function || memory || ports || reach
    }

    /// Registers in configuration space that Linux may not write: all of the function's, and the
    /// headers of the bridges above it.
    pub fn kept(&self) -> impl Iterator<Item = Configuration> {
        const HEADER_END: u16 = 0x3f;
        const LAST: u16 = 0xfff;
        let all = |function, last| Configuration { function, first: 0, last, present: 1 };
        let bridges = self.bridges.iter().flatten().map(move |bridge| all(*bridge, HEADER_END));
        let own = (!self.platform).then(|| all(self.function, LAST));
        own.into_iter().chain(bridges)
    }

    /// What the cell reads of a platform device at `4 * n`: memory, then ports.
    pub fn described(&self, register: u8) -> u32 {
        let index = usize::from(register / 4);
        match (self.base_addresses.get(index % BASE_ADDRESSES), index / BASE_ADDRESSES) {
            (Some(BaseAddress::Memory(memory, _)), 0) => {
                memory.cell_address as u32 | (memory.size / PAGE_SIZE - 1) as u32
            }
            (Some(BaseAddress::Ports(ports)), 1) => {
                u32::from(ports.first) | u32::from(ports.last) << 16
            }
            _ => 0,
        }
    }

    /// What the cell reads in `register`, a multiple of 4, which has `value`.
    pub fn read(&self, register: u8, value: u32) -> u32 {
        let Some(index) = base_address_at(register) else {
            return if register == register::ROM { 0 } else { value };
        };
        let is_sizing = self.sizing & 1 << index != 0;
        match self.base_addresses[index] {
            BaseAddress::None => 0,
            BaseAddress::Upper => {
                if is_sizing {
                    !0
                } else {
                    0
                }
            }
            BaseAddress::Memory(memory, flags) => {
                flags
                    | if is_sizing { !(memory.size as u32 - 1) } else { memory.cell_address as u32 }
            }
            BaseAddress::Ports(ports) => {
                let size = u32::from(ports.last - ports.first) + 1;
                base_address::PORTS | if is_sizing { !(size - 1) } else { ports.first.into() }
            }
        }
    }

    /// What is to be written to `register`, a multiple of 4, which has `old`, where the cell writes
    /// those bits of `value` that are set in `mask`; `None` if that is nothing.
    pub fn write(&mut self, register: u8, old: u32, value: u32, mask: u32) -> Option<u32> {
        if let Some(index) = base_address_at(register) {
            let all = value | !mask == !0 && mask != 0;
            self.sizing = self.sizing & !(1 << index) | u8::from(all) << index;
            return None;
        }
        let within = |start: u8, size: u8| (start..start.saturating_add(size)).contains(&register);
        let (allowed, cleared) = match (self.messages, self.message_table) {
            _ if register == COMMAND && self.pin => (COMMAND_BITS | PIN_OFF, ERRORS),
            _ if register == COMMAND => (COMMAND_BITS, ERRORS),
            (Some((place, _)), _) if register == place => (MESSAGES_CONTROL, 0),
            (Some((place, size)), _) if within(place, size) => (!0, 0),
            (_, Some(place)) if register == place => (TABLE_CONTROL, 0),
            _ => (0, 0),
        };
        let (kept, written) = (old & !(mask & allowed) & !cleared, value & mask & allowed);
        // The other half of the command register would clear what happened meanwhile.
        let kept = if register == COMMAND { kept & 0xffff } else { kept };
        (mask & (allowed | cleared) != 0).then_some(kept | written | value & mask & cleared)
    }
}

/// The base address register at `register`.
fn base_address_at(register: u8) -> Option<usize> {
    let is_one = (register::BASE_ADDRESS..register::BASE_ADDRESS_END).contains(&register);
    is_one.then(|| usize::from((register - register::BASE_ADDRESS) / 4))
}

/// Bytes of the pages that memory has.
fn pages(memory: &DeviceMemory) -> u64 {
    memory.size.next_multiple_of(PAGE_SIZE)
}

/// Tells whether numbers are in order.
fn is_sound(memory: &DeviceMemory, platform: bool) -> bool {
    const LEAST: u64 = 16;
    let DeviceMemory { physical, size, cell_address } = *memory;
    let alignment = if platform { PAGE_SIZE } else { size.max(PAGE_SIZE) };
    let sized = (LEAST..=MAX_DEVICE_MEMORY).contains(&size)
        && if platform { size.is_multiple_of(PAGE_SIZE) } else { size.is_power_of_two() };
    let is_aligned = |address: u64| address.is_multiple_of(alignment);
    sized
        && is_aligned(physical)
        && is_aligned(cell_address)
        && physical.checked_add(size).is_some_and(|end| end <= 1 << 48)
        && (DEVICE_MEMORY..DEVICE_MEMORY_END).contains(&cell_address)
        && cell_address + size <= DEVICE_MEMORY_END
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDE_AT: u64 = 0x12_3456_0000;

    /// A function with memory, ports, wide memory, and both kinds of messages.
    fn space() -> [u32; 64] {
        let mut space = [0; 64];
        space[1] = 0x0010_0000;
        space[4] = 0xfeb0_0000;
        space[5] = 0xc041;
        (space[6], space[7]) = (WIDE_AT as u32 | 0xc, (WIDE_AT >> 32) as u32);
        space[12] = 0xfec0_0001;
        space[13] = 0x50;
        // Messages of 64 bits that can be masked, then a table.
        space[20] = 0x0180_7005;
        space[28] = 0x0003_0011;
        space
    }

    fn config() -> DeviceConfig {
        let mut config = DeviceConfig {
            function: 0x0310,
            bridge_count: 1,
            flags: 0,
            bridges: [0x0010; MAX_BRIDGES],
            memory: [DeviceMemory::default(); BASE_ADDRESSES],
            ports: [PortRange::default(); BASE_ADDRESSES],
        };
        let memory = |physical, size, cell_address| DeviceMemory { physical, size, cell_address };
        config.memory[0] = memory(0xfeb0_0000, 0x10_0000, 0xe010_0000);
        config.ports[1] = PortRange { first: 0xc040, last: 0xc05f, flags: 0 };
        config.memory[2] = memory(WIDE_AT, 0x100, 0xe000_0000);
        config
    }

    fn check(config: &DeviceConfig, space: &[u32; 64]) -> Result<Device, Refusal> {
        Device::check(config, |register| space[usize::from(register / 4)])
    }

    fn device() -> Device {
        check(&config(), &space()).expect("sound")
    }

    #[test]
    fn a_function_has_what_its_registers_say() {
        let device = device();
        let memory: Vec<_> = device.memory().map(|memory| (memory.physical, memory.size)).collect();
        assert_eq!(memory, [(0xfeb0_0000, 0x10_0000), (WIDE_AT, 0x1000)]);
        assert_eq!(device.ports().collect::<Vec<_>>(), [0xc040..=0xc05f]);
        assert_eq!(device.pages().count(), 257);
        let (to, from) = device.pages().last().expect("pages");
        assert_eq!((to.get(), from.get()), (0xe000_0000, WIDE_AT));
        let kept: Vec<_> = device.kept().map(|kept| (kept.function, kept.last)).collect();
        assert_eq!(kept, [(0x0310, 0xfff), (0x0010, 0x3f)]);
        assert!(device.has_memory_of(PhysAddr::new(0xfeb0_f000), 1));
        assert!(!device.has_memory_of(PhysAddr::new(0xfec0_0000), 1 << 20));
    }

    #[test]
    fn what_the_registers_do_not_say_is_refused() {
        let refused = |change: &dyn Fn(&mut DeviceConfig)| {
            let mut config = config();
            change(&mut config);
            check(&config, &space()).is_err()
        };
        assert!(!refused(&|_| ()));
        assert!(refused(&|config| config.bridge_count = MAX_BRIDGES as u16 + 1));
        assert!(refused(&|config| config.flags = 2));
        assert!(refused(&|config| config.memory[0].physical += 0x10_0000));
        assert!(refused(&|config| config.memory[0].size = 0x11_0000));
        assert!(refused(&|config| config.memory[0].size = 8));
        assert!(refused(&|config| config.memory[0].cell_address = 0xe000_1000));
        assert!(refused(&|config| config.memory[0].cell_address = 0xd000_0000));
        assert!(refused(&|config| config.memory[0].cell_address = DEVICE_MEMORY_END));
        assert!(refused(&|config| config.memory[1].size = 0x1000));
        assert!(refused(&|config| {
            config.memory[0].size = 0;
            config.ports[0] = config.ports[1];
        }));
        assert!(refused(&|config| config.ports[1].first = 0xc000));
        assert!(refused(&|config| config.ports[1].last = 0xc000));
        assert!(refused(&|config| config.ports[1].flags = 1));
        assert!(refused(&|config| config.memory[2].physical &= 0xffff_ffff));
    }

    #[test]
    fn a_function_reaches_memory_unless_it_is_not_to() {
        let mut config = config();
        assert!(check(&config, &space()).is_ok_and(|device| device.reaches_memory));
        config.flags = DEVICE_WITHOUT_MEMORY;
        assert!(check(&config, &space()).is_ok_and(|device| !device.reaches_memory));
    }

    #[test]
    fn no_cell_has_a_bridge() {
        let mut space = space();
        space[3] = 0x0081_0000;
        assert_eq!(check(&config(), &space).err(), Some(Refusal::Invalid));
        space[3] = 0x0080_0000;
        assert!(check(&config(), &space).is_ok());
    }

    #[test]
    fn two_functions_share_nothing() {
        let one = device();
        let mut other = one;
        other.function += 1;
        assert!(one.clashes(&other, false));
        other.base_addresses = [BaseAddress::None; BASE_ADDRESSES];
        assert!(!one.clashes(&other, true));
        other.reaches_memory = false;
        assert!(one.clashes(&other, true) && !one.clashes(&other, false));
        other.reaches_memory = true;
        other.function = one.function;
        assert!(one.clashes(&other, false));
        other.function += 1;
        let memory = DeviceMemory { physical: 1 << 40, size: 16, cell_address: 0xe000_0000 };
        other.base_addresses[0] = BaseAddress::Memory(memory, 0);
        assert!(one.clashes(&other, true) && !one.clashes(&other, false));
        let ports = PortRange { first: 0xc05f, last: 0xc060, flags: 1 };
        other.base_addresses[0] = BaseAddress::Ports(ports);
        assert!(one.clashes(&other, false));
    }

    #[test]
    fn base_addresses_are_the_cells() {
        let (mut device, space) = (device(), space());
        let read =
            |device: &Device, register: u8| device.read(register, space[usize::from(register / 4)]);
        let all =
            |device: &Device| [0x10, 0x14, 0x18, 0x1c, 0x20, 0x24, 0x30].map(|at| read(device, at));
        let seen = [0xe010_0000, 0xc041, 0xe000_000c, 0, 0, 0, 0];
        assert_eq!(all(&device), seen);
        for register in (0x10..0x28).step_by(4) {
            assert_eq!(device.write(register, 0, !0, !0), None);
        }
        assert_eq!(all(&device), [0xfff0_0000, 0xffff_ffe1, 0xffff_ff0c, !0, 0, 0, 0]);
        for register in (0x10..0x28).step_by(4) {
            assert_eq!(device.write(register, 0, 0x1234_5678, !0), None);
        }
        assert_eq!(all(&device), seen);
        assert_eq!(read(&device, 0x50), 0x0180_7005);
    }

    #[test]
    fn what_a_cell_may_write() {
        let mut device = device();
        // Command alone: errors stay.
        assert_eq!(device.write(4, 0xf810_0400, 0x0007, 0xffff), Some(0x0407));
        assert_eq!(device.write(4, 0xf810_0140, !0, 0xffff), Some(0x0147));
        assert_eq!(device.write(4, 0xf810_0004, 0x8000_0000, 0xffff_0000), Some(0x8000_0004));
        // The pin, where its line is the cell's.
        assert_eq!(device.write(4, 0x0010_0402, 0, 0x0400), None);
        device.pin = true;
        assert_eq!(device.write(4, 0x0010_0402, 0, 0x0400), Some(0x0002));
        assert_eq!(device.write(4, 0x0010_0002, !0, 0x0400), Some(0x0402));
        device.pin = false;
        assert_eq!(device.write(0x50, 0x0180_7005, 0xffff_ffff, !0), Some(0x01f1_7005));
        assert_eq!(device.write(0x54, 0, 0xfee0_0010, !0), Some(0xfee0_0010));
        assert_eq!(device.write(0x60, 0, 0x1234, 0xffff), Some(0x1234));
        assert_eq!(device.write(0x64, 0, 1, !0), None);
        assert_eq!(device.write(0x70, 0x0003_0011, 0x8000_0000, 0xffff_0000), Some(0x8003_0011));
        assert_eq!(device.write(0x74, 0, !0, !0), None);
        for register in [0, 8, 0xc, 0x28, 0x2c, 0x30, 0x34, 0x38, 0x3c, 0x40, 0x4c] {
            assert_eq!(device.write(register, 0, !0, !0), None, "{register:#x}");
        }
    }

    #[test]
    fn a_platform_device_has_pages_and_no_configuration() {
        let mut config = config();
        config.flags = DEVICE_PLATFORM | DEVICE_WITHOUT_MEMORY;
        config.bridge_count = 0;
        config.memory = [DeviceMemory::default(); BASE_ADDRESSES];
        config.ports = [PortRange::default(); BASE_ADDRESSES];
        config.memory[1] =
            DeviceMemory { physical: 0xfed4_0000, size: 0x5000, cell_address: 0xe000_3000 };
        let checked = |config: &DeviceConfig| Device::check(config, |_| panic!("it has none"));
        let device = checked(&config).expect("sound");
        assert!(device.platform && !device.reaches_memory);
        assert_eq!((device.pages().count(), device.kept().count()), (5, 0));
        let mut with_ports = config;
        with_ports.ports[2] = PortRange { first: 0x378, last: 0x37f, flags: 0 };
        let with_ports = checked(&with_ports).expect("sound");
        assert_eq!(
            [4, 8, 24, 32, 0xfc].map(|at| with_ports.described(at)),
            [0xe000_3004, 0, 0, 0x037f_0378, 0]
        );
        assert_eq!([0, 4, 8, 0x18, 0xfc].map(|at| device.described(at)), [0, 0xe000_3004, 0, 0, 0]);
        for (physical, size, cell_address) in [
            (0xfed4_0100, 0x1000, 0xe000_0000),
            (0xfed4_0000, 0x100, 0xe000_0000),
            (0xfed4_0000, 0x1000, 0x10_0000),
            (0xfed4_0000, MAX_DEVICE_MEMORY + PAGE_SIZE, 0xe000_0000),
            (!0xfff, 0x2000, 0xe000_0000),
        ] {
            let mut config = config;
            config.memory[1] = DeviceMemory { physical, size, cell_address };
            assert_eq!(checked(&config).err(), Some(Refusal::Invalid), "{physical:#x} {size:#x}");
        }
        config.bridge_count = 1;
        assert_eq!(checked(&config).err(), Some(Refusal::Invalid));
    }

    proptest! {
        /// No write changes what is not the cell's.
        #[test]
        fn nothing_else_changes(
            writes in prop::collection::vec((0u8..64, any::<u32>(), any::<u32>()), 1..200),
        ) {
            let (mut device, start) = (device(), space());
            let mut space = start;
            for (number, value, mask) in writes {
                let register = 4 * number;
                let place = &mut space[usize::from(number)];
                if let Some(written) = device.write(register, *place, value, mask) {
                    *place = match register {
                        // Errors are cleared by ones.
                        4 => written & 0xffff | *place & 0xffff_0000 & !(written & ERRORS),
                        _ => written,
                    };
                }
                let memory: Vec<_> = device.memory().collect();
                prop_assert_eq!(memory.len(), 2);
            }
            for (number, (found, before)) in space.iter().zip(start).enumerate() {
                let free = match number {
                    1 => COMMAND_BITS | ERRORS,
                    20 => MESSAGES_CONTROL,
                    21..=24 => !0,
                    28 => TABLE_CONTROL,
                    _ => 0,
                };
                prop_assert_eq!((found ^ before) & !free, 0, "register {}", number * 4);
            }
        }
    }
}
