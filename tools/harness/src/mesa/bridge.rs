// SPDX-License-Identifier: MIT OR Apache-2.0
//! A card 5I20, whose FPGA is behind a bridge to the bus (PLX 9030): programs reset the FPGA, and
//! send it what it is to be, by I/O ports.

use super::hostmot2::{self, Connectors, HostMot2};
use crate::vfio_user::{BASE_ADDRESSES, Function, Identity, Region};

/// Bytes of the bridge's own registers, which are in memory and at I/O ports; and how many ports
/// lead to the FPGA.
const REGISTERS: usize = 128;
const DATA_PORTS: u64 = 256;

/// By base address register.
mod region {
    pub const REGISTERS: usize = 0;
    pub const REGISTER_PORTS: usize = 1;
    pub const DATA_PORTS: usize = 2;
    pub const FIRMWARE: usize = 5;
}

/// Register of the bridge's pins, and those of the FPGA there.
const PINS: usize = 0x54;
const DONE: u32 = 1 << 11;
const INIT: u32 = 1 << 14;
const WRITE: u32 = 1 << 23;
const PROGRAM: u32 = 1 << 26;

/// Registers of four spaces of the bus to the FPGA, in which is set that the FPGA says when it is
/// ready.
const BUS: &[usize] = &[0x28, 0x2c, 0x30, 0x34];
const READY: u8 = 2;

/// What a bitstream has in it (Xilinx, XAPP151): where it begins, and the command by which the FPGA
/// starts.
const BEGIN: u32 = 0xaa99_5566;
const START: u64 = 0x3000_8001_0000_0005;

/// How far an FPGA is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fpga {
    /// It is held in reset.
    Reset,
    /// It waits for a bitstream, whose last bytes these are.
    Waits(u64),
    /// It takes one.
    Takes(u64),
    /// It does what it was told.
    Runs,
}

/// The card.
pub struct Card5I20 {
    registers: [u8; REGISTERS],
    fpga: Fpga,
    firmware: HostMot2,
}

impl Card5I20 {
    /// One whose FPGA was told nothing.
    pub fn new() -> Self {
        let connectors = Connectors { count: 3, pins: 24 };
        let mut registers = [0; REGISTERS];
        registers[PINS..PINS + 4].copy_from_slice(&(PROGRAM | WRITE).to_le_bytes());
        for space in BUS {
            registers[*space] = READY;
        }
        let firmware = HostMot2::new(b"MESA5I20", connectors, None);
        Self { registers, fpga: Fpga::Waits(0), firmware }
    }

    /// The register of pins.
    fn pins(&self) -> u32 {
        let set = u32::from_le_bytes(std::array::from_fn(|at| self.registers[PINS + at]));
        let told = match self.fpga {
            Fpga::Reset => 0,
            Fpga::Waits(_) | Fpga::Takes(_) => INIT,
            Fpga::Runs => INIT | DONE,
        };
        set & !(INIT | DONE) | told
    }

    /// The FPGA sees the pins that programs have set.
    fn look_at_pins(&mut self) {
        match (self.pins() & PROGRAM != 0, self.fpga) {
            (false, _) => {
                self.fpga = Fpga::Reset;
                self.firmware.reset();
            }
            (true, Fpga::Reset) => self.fpga = Fpga::Waits(0),
            _ => {}
        }
    }

    /// A byte comes for the FPGA.
    fn take(&mut self, byte: u8) {
        if self.pins() & WRITE != 0 {
            return;
        }
        // The first bit that it takes is the lowest of the port.
        let next = |last: u64| last << 8 | u64::from(byte.reverse_bits());
        self.fpga = match self.fpga {
            Fpga::Waits(last) if next(last) as u32 == BEGIN => Fpga::Takes(0),
            Fpga::Waits(last) => Fpga::Waits(next(last)),
            Fpga::Takes(last) if next(last) == START => Fpga::Runs,
            Fpga::Takes(last) => Fpga::Takes(next(last)),
            other => other,
        };
    }
}

impl Function for Card5I20 {
    fn identity(&self) -> Identity {
        Identity { ids: (0x10b5, 0x9030), subsystem: (0x10b5, 0x3131), class: 0x11_8000 }
    }

    fn regions(&self) -> [Region; BASE_ADDRESSES] {
        let mut regions = [Region::None; BASE_ADDRESSES];
        regions[region::REGISTERS] = Region::Memory(REGISTERS as u64);
        regions[region::REGISTER_PORTS] = Region::Ports(REGISTERS as u64);
        regions[region::DATA_PORTS] = Region::Ports(DATA_PORTS);
        regions[region::FIRMWARE] = Region::Memory(hostmot2::SIZE);
        regions
    }

    fn read(&mut self, region: usize, offset: u64, bytes: &mut [u8]) {
        match region {
            region::REGISTERS | region::REGISTER_PORTS => {
                let mut told = self.registers;
                told[PINS..PINS + 4].copy_from_slice(&self.pins().to_le_bytes());
                bytes.copy_from_slice(&told[offset as usize..][..bytes.len()]);
            }
            region::FIRMWARE if self.fpga == Fpga::Runs => self.firmware.read(offset, bytes),
            _ => bytes.fill(0xff),
        }
    }

    fn write(&mut self, region: usize, offset: u64, bytes: &[u8]) {
        match region {
            region::REGISTERS | region::REGISTER_PORTS => {
                self.registers[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                self.look_at_pins();
            }
            region::DATA_PORTS => bytes.iter().for_each(|byte| self.take(*byte)),
            region::FIRMWARE if self.fpga == Fpga::Runs => self.firmware.write(offset, bytes),
            _ => {}
        }
    }

    fn reset(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pins(card: &mut Card5I20) -> u32 {
        let mut bytes = [0; 4];
        card.read(region::REGISTER_PORTS, PINS as u64, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn set_pins(card: &mut Card5I20, pins: u32) {
        card.write(region::REGISTER_PORTS, PINS as u64, &pins.to_le_bytes());
    }

    fn cookie(card: &mut Card5I20) -> u32 {
        let mut bytes = [0; 4];
        card.read(region::FIRMWARE, 0x100, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn send(card: &mut Card5I20, bytes: &[u8]) {
        for byte in bytes {
            card.write(region::DATA_PORTS, 0, &[byte.reverse_bits()]);
        }
    }

    #[test]
    fn it_is_what_the_bitstream_says_from_its_end_on() {
        let mut card = Card5I20::new();
        assert_eq!((cookie(&mut card), pins(&mut card) & (INIT | DONE)), (!0, INIT));
        set_pins(&mut card, WRITE);
        assert_eq!(pins(&mut card) & (INIT | DONE), 0);
        set_pins(&mut card, WRITE | PROGRAM);
        let stream =
            [&[0xff; 9][..], &BEGIN.to_be_bytes(), &[7; 90], &START.to_be_bytes()].concat();
        // It takes nothing as long as it is not written to.
        send(&mut card, &stream);
        assert_eq!(pins(&mut card) & (INIT | DONE), INIT);
        set_pins(&mut card, PROGRAM);
        send(&mut card, &START.to_be_bytes());
        assert_eq!(pins(&mut card) & (INIT | DONE), INIT);
        send(&mut card, &stream);
        assert_eq!(pins(&mut card) & (INIT | DONE), INIT | DONE);
        assert_eq!(cookie(&mut card), 0x55aa_cafe);
        set_pins(&mut card, 0);
        assert_eq!((cookie(&mut card), pins(&mut card) & (INIT | DONE)), (!0, 0));
    }

    proptest! {
        #[test]
        fn no_access_breaks_it(
            region in 0usize..6,
            at in 0u64..120,
            bytes in prop::collection::vec(0u8.., 0..8),
        ) {
            let mut card = Card5I20::new();
            card.write(region, at, &bytes);
            card.read(region, at, &mut bytes.clone());
        }
    }
}
