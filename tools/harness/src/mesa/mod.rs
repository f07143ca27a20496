// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cards of Mesa Electronics (Anything I/O), played for QEMU.

mod bridge;
mod flash;
mod hostmot2;

use crate::vfio_user::{BASE_ADDRESSES, Function, Identity, Region};
use bridge::Card5I20;
use flash::Flash;
use hostmot2::{Connectors, HostMot2};

/// A card of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Card {
    /// A 5I25: registers in memory, and a flash memory.
    #[value(name = "5i25")]
    Direct,
    /// A 5I20: a bridge with I/O ports, by which its FPGA is told what to be.
    #[value(name = "5i20")]
    Bridged,
}

impl Card {
    /// Its slot on the first bus.
    pub fn slot(self) -> u8 {
        0x18 + self as u8
    }

    /// Makes one.
    pub fn make(self) -> Box<dyn Function> {
        match self {
            Self::Direct => Box::new(Card5I25::new()),
            Self::Bridged => Box::new(Card5I20::new()),
        }
    }
}

/// A card whose FPGA is on the bus itself. Its flash memory is erased.
struct Card5I25(HostMot2);

impl Card5I25 {
    fn new() -> Self {
        let connectors = Connectors { count: 2, pins: 17 };
        Self(HostMot2::new(b"MESA5I25", connectors, Some(Flash::new(&[]))))
    }
}

impl Function for Card5I25 {
    fn identity(&self) -> Identity {
        Identity { ids: (0x2718, 0x5125), subsystem: (0x2718, 0x5125), class: 0x11_8000 }
    }

    fn regions(&self) -> [Region; BASE_ADDRESSES] {
        let mut regions = [Region::None; BASE_ADDRESSES];
        regions[0] = Region::Memory(hostmot2::SIZE);
        regions
    }

    fn read(&mut self, _region: usize, offset: u64, bytes: &mut [u8]) {
        self.0.read(offset, bytes);
    }

    fn write(&mut self, _region: usize, offset: u64, bytes: &[u8]) {
        self.0.write(offset, bytes);
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}
