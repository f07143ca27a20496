// SPDX-License-Identifier: MIT OR Apache-2.0
//! PCI functions and platform devices change their owner, and cells drive them.

use core::ops::RangeInclusive;
use core::sync::atomic::Ordering;

use crtos_abi::device::*;
use crtos_abi::image::Configuration;
use crtos_abi::share::SHARE_WINDOW;
use crtos_abi::{LARGE_PAGE_SIZE, PAGE_SIZE};
use crtos_iommu::Requester;
use crtos_iommu::cell_tables::CellTables;
use crtos_iommu::interrupt::{Cpus, Interrupt};
use crtos_iommu::layout::{Access, Piece};
use crtos_iommu::mappings::{Mappings, Request};
use crtos_iommu::tables::{Rights, order_of_level};
use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::device::{BUS_MASTER, COMMAND, Device, PIN_OFF};
use crtos_partition::error::Refusal;
use crtos_partition::ids::{ApicId, CellId};
use crtos_partition::nested::{self, Leaf};
use crtos_partition::permissions::ports_meet;
use crtos_partition::resets::Resets;
use crtos_partition::{configuration as pci, permissions};

use super::{Ownership, Possessions, Root, refusal};
use crate::devices::{Owned, page_of};
use crate::direct_map::AnyBits;
use crate::frames::Frames;
use crate::linux_memory::LinuxMemory;
use crate::{cell, configuration, launch_info};

// SAFETY: Plain integers and arrays of structures of such.
unsafe impl AnyBits for DeviceConfig {}

/// What Linux loses to functions, and gets back.
impl Root {
    /// Takes the pages of a function's registers; all or, if that fails, none.
    fn take_pages(&mut self, frames: &mut Frames, device: &Device) -> Result<(), Refusal> {
        for (done, (_, page)) in device.pages().enumerate() {
            // Where something was taken away this fails, and so does what follows.
            let _ = self.tables.reach(frames, page);
            let taken = match self.tables.owns(frames, page, PAGE_SIZE) {
                true => self.tables.hide(frames, page).map_err(refusal),
                false => Err(Refusal::Owned),
            };
            if taken.is_err() {
                self.give_pages(frames, device.pages().take(done));
                return taken;
            }
        }
        Ok(())
    }

    /// Gives pages back that were taken.
    fn give_pages(
        &mut self,
        frames: &mut Frames,
        pages: impl Iterator<Item = (GuestAddr, PhysAddr)>,
    ) {
        for (_, page) in pages {
            // It was split when it was taken, and nothing else came there.
            let _ = self.tables.show(frames, page);
        }
    }

    /// Has Linux's writes to configuration space exit that may touch `kept`, or not any more.
    fn keep(&mut self, frames: &mut Frames, kept: Configuration, on: bool) -> Result<(), Refusal> {
        let Some(page) = page_of(kept) else { return Ok(()) };
        // As for pages.
        let _ = self.tables.reach(frames, page);
        let access = if on { nested::Access::READ_ONLY } else { nested::Access::FULL };
        self.tables.protect(frames, page, access).map_err(refusal)
    }
}

impl Ownership {
    /// Has Linux's accesses to PCI configuration space by ports exit. Once its CPUs have flushed,
    /// that space is the hypervisor's as long as the lock is held.
    pub fn watch_configuration(&mut self) {
        if let Some(root) = &mut self.root {
            let ports = pci::PORTS;
            permissions::trap_ports(&mut *root.ports, *ports.start(), *ports.end(), true);
        }
    }

    /// Checks a function that a cell is to have; Linux does not reach configuration space
    /// meanwhile. [`Refusal::Denied`] if no IOMMU confines it.
    pub fn check_device(&self, id: CellId, config: &DeviceConfig) -> Result<Device, Refusal> {
        let confined = self.iommus.confine_all() && !launch_info::has_scattered_configuration();
        if !confined && config.flags & DEVICE_PLATFORM == 0 {
            return Err(Refusal::Denied);
        }
        let device =
            Device::check(config, |register| configuration::read(config.function, register))?;
        let clashes = |owned: &Owned| device.clashes(&owned.device, owned.cell == id);
        let functions = || launch_info::configurations().map(|listed| listed.function);
        let reserved = |ports: &RangeInclusive<u16>| {
            let resets = launch_info::resets();
            let mut resets = resets.iter().flat_map(Resets::ports);
            ports_meet(ports, &pci::PORTS)
                || launch_info::watched_ports().any(|watched| ports_meet(ports, &watched))
                || resets.any(|reset| ports_meet(ports, &reset))
                || self.configs().any(|config| config.has_port_of(ports))
        };
        let foreign = self.devices.places.iter().flatten().any(clashes)
            || functions().any(|function| function == config.function)
            || device.ports().any(|ports| reserved(&ports))
            || self.has_port_of_configuration()
            || device.pages().any(|(_, page)| launch_info::is_special(page));
        if foreign { Err(Refusal::Owned) } else { Ok(device) }
    }

    /// Tells whether a cell may use the ports of PCI configuration space.
    fn has_port_of_configuration(&self) -> bool {
        self.configs().any(|config| config.has_port_of(&pci::PORTS))
    }

    /// Gives a function that is [checked](Self::check_device) to a cell, not connected. No CPU of
    /// Linux runs meanwhile, and none goes on with cached translations.
    pub fn add_device(
        &mut self,
        id: CellId,
        device: &Device,
        cpus: &impl Cpus,
    ) -> Result<(), Refusal> {
        let Self { frames, root: Some(root), devices, .. } = self else {
            return Err(Refusal::Invalid);
        };
        let place = devices.places.iter().position(Option::is_none).ok_or(Refusal::NoMemory)?;
        cell::get(id).has_had_device.store(true, Ordering::Relaxed);
        root.take_pages(frames, device)?;
        for ports in device.ports() {
            permissions::trap_ports(&mut *root.ports, *ports.start(), *ports.end(), true);
        }
        let kept = device.kept().try_for_each(|kept| root.keep(frames, kept, true));
        devices.places[place] =
            Some(Owned { cell: id, device: *device, connected: false, own: None });
        devices.report();
        let result = kept.and_then(|()| {
            self.withdraw_devices(device, cpus)?;
            self.attach(device, Some(None), cpus)
        });
        if result.is_err() {
            self.forget_device(device, cpus);
        }
        result
    }

    /// Has no device of Linux reach what a function has.
    fn withdraw_devices(&mut self, device: &Device, cpus: &impl Cpus) -> Result<(), Refusal> {
        let Some((iommus, mut memory)) = self.iommus() else { return Err(Refusal::Invalid) };
        let pages = device.pages().map(|(_, page)| page);
        let mut last = None;
        for page in pages.chain(device.kept().filter_map(page_of)) {
            let block = page.align_down(LARGE_PAGE_SIZE);
            if last != Some(block) {
                iommus.withdraw(&mut memory, block);
                last = Some(block);
            }
        }
        if iommus.finish_withdrawal(cpus, &mut memory) { Ok(()) } else { Err(Refusal::Timeout) }
    }

    /// Says by what a function translates, or that it is Linux's. A platform device masters no bus.
    fn attach(
        &mut self,
        device: &Device,
        tables: Option<Option<CellTables>>,
        cpus: &impl Cpus,
    ) -> Result<(), Refusal> {
        if device.platform {
            return Ok(());
        }
        let Some((iommus, mut memory)) = self.iommus() else { return Err(Refusal::Invalid) };
        let done = iommus.set_function(&mut memory, Requester(device.function), tables, cpus);
        if done { Ok(()) } else { Err(Refusal::Timeout) }
    }

    /// Takes a function away that is not connected: it is Linux's.
    fn forget_device(&mut self, device: &Device, cpus: &impl Cpus) {
        // A unit that does not react is told of when memory changes its owner.
        let _ = self.attach(device, None, cpus);
        let Self { frames, root: Some(root), devices, .. } = self else { return };
        for place in &mut devices.places {
            place.take_if(|owned| owned.device.function == device.function);
        }
        devices.report();
        root.give_pages(frames, device.pages());
        for ports in device.ports() {
            permissions::trap_ports(&mut *root.ports, *ports.start(), *ports.end(), false);
        }
        for kept in device.kept() {
            let listed = launch_info::configurations().chain(devices.kept());
            if !listed.into_iter().any(|other| other.function == kept.function) {
                // It was split when it was protected.
                let _ = root.keep(frames, kept, false);
            }
        }
        self.give_memory_to_devices(cpus);
    }

    /// Connects all functions of a cell that is about to run. No CPU of Linux runs meanwhile, and
    /// none goes on with cached translations.
    pub fn connect_all(&mut self, id: CellId, cpus: &impl Cpus) -> Result<(), Refusal> {
        let each = |index| self.device(id, index).map(|function| self.connect(id, function, cpus));
        (0..).map_while(each).collect()
    }

    /// Connects a function of a cell that runs, likewise.
    pub fn connect(&mut self, id: CellId, function: u16, cpus: &impl Cpus) -> Result<(), Refusal> {
        let tables = match self.devices.find(id, function)?.device {
            Device { platform: true, .. } => None,
            Device { reaches_memory: true, .. } => Some(self.cell_tables(id)?),
            _ => Some(self.own_tables(id, function)?),
        };
        let Self { frames, cells, devices, .. } = self;
        let owned = devices.find(id, function)?;
        let cell = cells[id.get()].as_mut().ok_or(Refusal::NoCell)?;
        owned.connected = true;
        let device = owned.device;
        let access = nested::Access { write: true, execute: false };
        for (address, page) in device.pages() {
            let leaf = Leaf { physical: page, level: 1, access, private: false };
            cell.tables.map(frames, address, leaf).map_err(refusal)?;
        }
        for ports in device.ports() {
            permissions::trap_ports(&mut *cell.ports, *ports.start(), *ports.end(), false);
        }
        self.attach(&device, Some(tables), cpus)
    }

    /// Disconnects all functions of a cell that no CPU runs any more. No CPU of Linux runs
    /// meanwhile, and none goes on with cached translations.
    pub fn disconnect_all(&mut self, id: CellId, cpus: &impl Cpus) -> Result<(), Refusal> {
        let each = |index| self.device(id, index).map(|number| self.disconnect(id, number, cpus));
        (0..).map_while(each).collect::<Result<(), Refusal>>()?;
        if let Some(tables) = self.devices.tables[id.get()].take()
            && let Some((_, mut memory)) = self.iommus()
        {
            tables.free(&mut memory);
        }
        Ok(())
    }

    /// Disconnects a function of a cell, likewise. CPUs of the cell may have cached where its
    /// registers are.
    pub fn disconnect(
        &mut self,
        id: CellId,
        function: u16,
        cpus: &impl Cpus,
    ) -> Result<(), Refusal> {
        let Self { frames, cells, devices, .. } = self;
        let owned = devices.find(id, function)?;
        if !owned.connected {
            return Ok(());
        }
        let device = owned.device;
        if !device.platform {
            let command = configuration::read(function, COMMAND);
            configuration::write(function, COMMAND, command & 0xffff & !BUS_MASTER | PIN_OFF);
        }
        let cell = cells[id.get()].as_mut().ok_or(Refusal::NoCell)?;
        for (address, _) in device.pages() {
            // What is not there was not mapped when it was connected.
            let _ = cell.tables.unmap(frames, address, 1);
        }
        for ports in device.ports() {
            permissions::trap_ports(&mut *cell.ports, *ports.start(), *ports.end(), true);
        }
        self.attach(&device, Some(None), cpus)?;
        let owned = self.devices.find(id, function)?;
        owned.connected = false;
        let own = owned.own.take();
        if let (Some(own), Some((_, mut memory))) = (own, self.iommus()) {
            own.free(&mut memory);
        }
        Ok(())
    }

    /// Gives a function back to Linux that is disconnected, and of which the cell's CPUs have
    /// cached nothing. No CPU of Linux runs meanwhile, and none goes on with cached translations.
    pub fn remove_device(
        &mut self,
        id: CellId,
        function: u16,
        cpus: &impl Cpus,
    ) -> Result<(), Refusal> {
        let owned = *self.devices.find(id, function)?;
        if owned.connected {
            return Err(Refusal::Busy);
        }
        self.forget_device(&owned.device, cpus);
        Ok(())
    }

    /// Gives all functions of a cell back that no CPU runs, likewise.
    pub fn remove_all(&mut self, id: CellId, cpus: &impl Cpus) -> Result<(), Refusal> {
        while let Some(function) = self.device(id, 0) {
            self.remove_device(id, function, cpus)?;
        }
        Ok(())
    }

    /// Tells whether a function of a cell may reach its memory.
    pub fn any_connected(&self, id: CellId) -> bool {
        self.devices.tables[id.get()].is_some() || self.devices.of(id).any(|owned| owned.connected)
    }

    /// The tables by which functions of a cell translate that find all memory of the cell.
    fn cell_tables(&mut self, id: CellId) -> Result<CellTables, Refusal> {
        if let Some(known) = self.devices.tables[id.get()] {
            return Ok(known);
        }
        let Self { frames, root: Some(root), cells, iommus, devices, .. } = self else {
            return Err(Refusal::Invalid);
        };
        let cell = cells[id.get()].as_ref().ok_or(Refusal::NoCell)?;
        let (kind, domain) = iommus.of_cell(id).ok_or(Refusal::Denied)?;
        let mut memory = LinuxMemory { frames, tables: &mut root.tables, devices };
        let tables = CellTables::new(&mut memory, kind, domain).ok_or(Refusal::NoMemory)?;
        if !map_all(&mut memory, &tables, cell) {
            tables.free(&mut memory);
            return Err(Refusal::NoMemory);
        }
        devices.tables[id.get()] = Some(tables);
        Ok(tables)
    }

    /// Tables by which one function of a cell is to translate, and finds nothing so far.
    fn own_tables(&mut self, id: CellId, function: u16) -> Result<CellTables, Refusal> {
        let Some((iommus, mut memory)) = self.iommus() else { return Err(Refusal::Invalid) };
        let (kind, domain) = iommus.of_function(Requester(function)).ok_or(Refusal::Denied)?;
        let own = Mappings::new(&mut memory, kind, domain).ok_or(Refusal::NoMemory)?;
        self.devices.find(id, function)?.own = Some(own);
        Ok(own.tables())
    }

    /// Changes what a function of a cell finds of the cell's memory.
    pub fn remap(&mut self, id: CellId, function: u16, request: Request) -> Result<(), Refusal> {
        let Self { frames, root: Some(root), cells, iommus, devices, .. } = self else {
            return Err(Refusal::Invalid);
        };
        let cell = cells[id.get()].as_ref().ok_or(Refusal::NoCell)?;
        let mut own = devices.find(id, function)?.own.ok_or(Refusal::Invalid)?;
        let most = MAX_DEVICE_TABLES - (devices.tables_below() - own.below());
        let mut memory = LinuxMemory { frames, tables: &mut root.tables, devices };
        let changed = own.carry_out(&mut memory, request, most, |memory, address| {
            let leaf = cell.tables.lookup(memory.frames, GuestAddr::new(address))?;
            let is_memory = !(SHARE_WINDOW..DEVICE_MEMORY_END).contains(&address);
            let page = leaf.physical + address % leaf.size();
            is_memory.then_some((page, leaf.access.write))
        });
        let forgotten = iommus.forget_domain(&mut memory, own.tables().domain);
        let result = changed.map(|gone| forgotten.then(|| gone.free(&mut memory)));
        devices.find(id, function)?.own = Some(own);
        result?.ok_or(Refusal::Timeout)
    }

    /// The function number `index` of a cell.
    pub fn device(&self, id: CellId, index: usize) -> Option<u16> {
        self.devices.of(id).nth(index).map(|owned| owned.device.function)
    }

    /// As the cell is told of it: see [`crtos_abi::hypercall::HC_DEVICE_LIST`].
    pub fn listed(&self, id: CellId, index: u64) -> Option<i64> {
        let owned = self.devices.of(id).nth(usize::try_from(index).ok()?)?;
        let width = owned.own.map_or(0, |own| own.width());
        let reach = if owned.device.reaches_memory { 0 } else { LISTED_WITHOUT_MEMORY };
        let kind = if owned.device.platform { LISTED_PLATFORM } else { 0 };
        Some(
            i64::from(owned.device.function)
                | kind
                | reach
                | i64::from(width) << LISTED_WIDTH_SHIFT,
        )
    }

    /// Reads for a cell in configuration space of a function.
    pub fn read_register(&mut self, id: CellId, function: u16, at: u64) -> Result<u32, Refusal> {
        let register = device_register(at)?;
        let owned = self.devices.find(id, function)?;
        if owned.device.platform {
            return Ok(owned.device.described(register));
        }
        Ok(owned.device.read(register, configuration::read(function, register)))
    }

    /// Writes there those bits of `value` that `mask` has, as far as the cell may.
    pub fn write_register(
        &mut self,
        id: CellId,
        function: u16,
        register: u64,
        value: u32,
        mask: u32,
    ) -> Result<(), Refusal> {
        let register = device_register(register)?;
        let owned = self.devices.find_function(id, function)?;
        let old = configuration::read(function, register);
        if let Some(written) = owned.device.write(register, old, value, mask) {
            configuration::write(function, register, written);
        }
        Ok(())
    }

    /// Has a message of a function of a cell interrupt `cpu` of that cell by `vector`, or nobody.
    /// Returns the address and the data that the function has to send.
    pub fn set_device_message(
        &mut self,
        id: CellId,
        function: u16,
        message: u64,
        target: Option<(ApicId, u8)>,
    ) -> Result<(u32, u32), Refusal> {
        let message = u32::try_from(message).ok().filter(|message| *message < MAX_MESSAGES);
        let message = message.ok_or(Refusal::Invalid)?;
        self.devices.find_function(id, function)?;
        let interrupt =
            target.map(|(cpu, vector)| Interrupt::of_cell(cpu, vector, launch_info::x2apic()));
        let Some((iommus, mut memory)) = self.iommus() else { return Err(Refusal::Invalid) };
        let address = iommus.set_message(&mut memory, Requester(function), message, interrupt);
        address.map(|address| (address, message)).ok_or(Refusal::Timeout)
    }
}

/// A register of configuration space that a cell names.
fn device_register(register: u64) -> Result<u8, Refusal> {
    let register = u8::try_from(register).ok().filter(|register| register.is_multiple_of(4));
    register.ok_or(Refusal::Invalid)
}

/// Maps all memory of a cell, but for Linux's that it shares.
fn map_all(memory: &mut LinuxMemory, tables: &CellTables, cell: &Possessions) -> bool {
    let mut next = GuestAddr::new(0);
    while let Some((address, leaf)) = cell.tables.leaf_from(memory.frames, next) {
        next = address + leaf.size();
        if (SHARE_WINDOW..DEVICE_MEMORY_END).contains(&address.get()) {
            continue;
        }
        let rights = Rights { read: true, write: leaf.access.write };
        let access = Access { rights, caching: 0 };
        let piece = Piece { address: leaf.physical, order: order_of_level(leaf.level), access };
        if !tables.map(memory, address.get(), piece) {
            return false;
        }
    }
    true
}
