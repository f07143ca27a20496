// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PCI functions and platform devices of cells.
//!
//! A device of a cell that runs is *connected*: the cell reaches its registers, and a function
//! reaches the cell's memory and CPUs. One that is not reaches nothing, and no guest reaches it.

use core::ops::RangeInclusive;

use crtos_abi::device::MAX_DEVICES;
use crtos_abi::image::Configuration;
use crtos_abi::{MAX_CELLS, PAGE_SIZE};
use crtos_iommu::cell_tables::CellTables;
use crtos_iommu::mappings::Mappings;
use crtos_partition::address::PhysAddr;
use crtos_partition::device::Device;
use crtos_partition::error::Refusal;
use crtos_partition::ids::CellId;
use crtos_partition::permissions::ports_meet;

use crate::{launch_info, report};

/// A function of a cell.
#[derive(Clone, Copy)]
pub(crate) struct Owned {
    pub(crate) cell: CellId,
    pub(crate) device: Device,
    pub(crate) connected: bool,
    /// By what it translates if it reaches no memory of its own accord, and is connected.
    pub(crate) own: Option<Mappings>,
}

/// All of them, and the tables by which those of each cell translate that reach all its memory.
pub(crate) struct Devices {
    pub(crate) places: [Option<Owned>; MAX_DEVICES],
    pub(crate) tables: [Option<CellTables>; MAX_CELLS],
}

impl Devices {
    pub(crate) const fn new() -> Self {
        Self { places: [None; MAX_DEVICES], tables: [None; MAX_CELLS] }
    }

    fn all(&self) -> impl Iterator<Item = &Device> {
        self.places.iter().flatten().map(|owned| &owned.device)
    }

    pub(crate) fn of(&self, cell: CellId) -> impl Iterator<Item = &Owned> {
        self.places.iter().flatten().filter(move |owned| owned.cell == cell)
    }

    /// The function of a cell, if it has it.
    pub(crate) fn find(&mut self, cell: CellId, function: u16) -> Result<&mut Owned, Refusal> {
        let mut all = self.places.iter_mut().flatten();
        let found = all.find(|owned| owned.cell == cell && owned.device.function == function);
        found.ok_or(Refusal::Invalid)
    }

    /// The same, if it is a PCI function that is connected.
    pub(crate) fn find_function(
        &mut self,
        cell: CellId,
        number: u16,
    ) -> Result<&mut Owned, Refusal> {
        match self.find(cell, number)? {
            owned if owned.device.platform => Err(Refusal::Invalid),
            owned if owned.connected => Ok(owned),
            _ => Err(Refusal::Busy),
        }
    }

    /// Tables below the top ones by which functions translate that have some of their own.
    pub(crate) fn tables_below(&self) -> u32 {
        self.places.iter().flatten().filter_map(|owned| owned.own).map(|own| own.below()).sum()
    }

    pub(crate) fn report(&self) {
        for (index, place) in self.places.iter().enumerate() {
            let told = |Owned { device, cell, .. }: Owned| {
                (device.function, 1 + u16::from(device.platform), cell.get() as u32)
            };
            report::device(index, place.map(told));
        }
    }

    /// Tells whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// Tells whether one has one of these ports.
    pub(crate) fn have_port_of(&self, ports: &RangeInclusive<u16>) -> bool {
        self.all().flat_map(Device::ports).any(|own| ports_meet(&own, ports))
    }

    /// Registers in configuration space that Linux may not write because of them.
    pub(crate) fn kept(&self) -> impl Iterator<Item = Configuration> {
        self.all().flat_map(Device::kept)
    }

    /// Tells whether Linux's stores to this page of configuration space exit because of them.
    pub(crate) fn keep_page(&self, page: PhysAddr) -> bool {
        self.kept().filter_map(page_of).any(|one| one == page)
    }

    /// Tells whether Linux's devices may not have all of these addresses of the machine: a part is
    /// a function's, or configuration space that Linux may not write.
    pub(crate) fn reserve(&self, address: PhysAddr, size: u64) -> bool {
        let end = address.get().saturating_add(size);
        let touched = |page: PhysAddr| page.get() < end && address < page + PAGE_SIZE;
        self.all().any(|device| device.has_memory_of(address, size))
            || self.kept().filter_map(page_of).any(touched)
    }
}

/// The page of configuration space in which these registers are, where that is memory.
pub(crate) fn page_of(kept: Configuration) -> Option<PhysAddr> {
    launch_info::configuration_page(kept.function)
}
