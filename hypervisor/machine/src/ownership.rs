// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who has which memory, ports and registers: the nested tables and permission maps of all cells,
//! under one lock.
//!
//! Linux has all RAM but the hypervisor's; a cell gets memory that Linux has and nothing else. So
//! no guest ever reaches the hypervisor's own memory, whatever the policy asks for.

use core::ops::RangeInclusive;

use crtos_abi::cell::{CellConfig, Region};
use crtos_abi::image::Configuration;
use crtos_abi::share::{PLACES, SHARE_WINDOW};
use crtos_abi::{LARGE_PAGE_SIZE, MAX_CELLS, PAGE_SIZE};
use crtos_iommu::fault::Fault;
use crtos_iommu::interrupt::Cpus;
use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::config::{CheckedRegion, Config};
use crtos_partition::error::Refusal;
use crtos_partition::ids::CellId;
use crtos_partition::nested::{Access, Leaf, MapError, NestedTables, RootTables};
use crtos_partition::permissions::{MSR_BITMAP_SIZE, PORT_BITMAP_SIZE, ports_meet};
use crtos_partition::resets::{self, Resets, Verdict};
use crtos_partition::{configuration as pci, grants, lifecycle, permissions, registers};
use crtos_registers::cpuid;
use spin::{Mutex, MutexGuard};

use crate::arch::{Domain, NestedFormat, VirtualCpu};
use crate::cpu::{self, Owner};
use crate::devices::Devices;
use crate::direct_map::{self, AnyBits};
use crate::frames::{Frames, Owned};
use crate::hpet::Hpets;
use crate::io_apic::IoApics;
use crate::iommu::{Iommus, Written};
use crate::linux_memory::{self, LinuxMemory};
use crate::local::Local;
use crate::{cell, configuration, launch_info, processor, report};

mod devices;
mod lines;

/// Most bytes of one [`Ownership::load`].
const LOAD_MAX: u64 = 0x1_0000;
type PortBitmap = Owned<[u8; PORT_BITMAP_SIZE]>;
type MsrBitmap = Owned<[u8; MSR_BITMAP_SIZE]>;

// SAFETY: Plain integers and arrays of structures of such.
unsafe impl AnyBits for CellConfig {}
// SAFETY: Plain integers.
unsafe impl AnyBits for Region {}

/// What the root cell has.
struct Root {
    tables: RootTables<NestedFormat>,
    ports: PortBitmap,
}

/// What a cell has.
struct Possessions {
    config: Config,
    tables: NestedTables<NestedFormat>,
    ports: PortBitmap,
    msrs: MsrBitmap,
    private: u64,
    shared: u64,
}

/// Who has what.
pub struct Ownership {
    frames: Frames,
    root: Option<Root>,
    cells: [Option<Possessions>; MAX_CELLS],
    /// Memory was taken from Linux whose translations may still be cached.
    pub stale: bool,
    /// The I/O APICs, as Linux drives them.
    io_apics: IoApics,
    /// The high-precision event timers, as Linux drives them.
    pub hpets: Hpets,
    iommus: Iommus,
    devices: Devices,
}

static OWNERSHIP: Mutex<Ownership> = Mutex::new(Ownership {
    frames: Frames::new(),
    root: None,
    cells: [const { None }; MAX_CELLS],
    stale: false,
    io_apics: IoApics::new(),
    hpets: Hpets::new(),
    iommus: Iommus::new(),
    devices: Devices::new(),
});

/// Shows that a CPU may leave the hypervisor: no cell exists, and none can be made with this CPU
/// any more.
pub struct Released(());

/// Takes the lock. The CPU serves requests while it waits.
pub fn lock(local: &mut Local) -> MutexGuard<'static, Ownership> {
    loop {
        if let Some(guard) = OWNERSHIP.try_lock() {
            return guard;
        }
        local.poll();
    }
}

/// Takes the lock, if nobody has it: a CPU of a cell waits for nobody.
pub fn try_lock() -> Option<MutexGuard<'static, Ownership>> {
    OWNERSHIP.try_lock()
}

fn refusal(error: MapError) -> Refusal {
    match error {
        MapError::NoMemory => Refusal::NoMemory,
        MapError::Occupied => Refusal::Invalid,
        MapError::Absent => Refusal::Owned,
    }
}

/// Sets up the root cell; once, at launch. `add_memory` fills the pool; `hidden` are blocks that
/// Linux loses, `read_only` pages that it cannot write; `then` takes what else is needed. `None` if
/// memory does not suffice.
pub(crate) fn init<R>(
    add_memory: impl FnOnce(&mut Frames),
    end: u64,
    hidden: impl Iterator<Item = PhysAddr>,
    read_only: impl Iterator<Item = PhysAddr>,
    then: impl FnOnce(&mut Frames) -> Option<R>,
) -> Option<R> {
    let mut guard = OWNERSHIP.lock();
    let Ownership { frames, root, iommus, .. } = &mut *guard;
    add_memory(frames);
    iommus.set_up(frames)?;
    let mut tables = RootTables::new(frames, end.next_multiple_of(1 << 30))?;
    for block in hidden {
        tables.take(frames, block).ok()?;
    }
    for page in read_only {
        tables.reach(frames, page).ok()?;
        tables.protect(frames, page, Access::READ_ONLY).ok()?;
    }
    for page in launch_info::iommu_pages() {
        tables.hide(frames, page).ok()?;
    }
    let mut ports: PortBitmap = frames.take()?;
    grants::fill_root_ports(&mut *ports, launch_info::watched_ports());
    let mut msrs: MsrBitmap = frames.take()?;
    registers::fill_root(&mut *msrs);
    cell::ROOT.set(&Domain {
        nested_top: tables.tables().top(),
        port_bitmap: ports.address(),
        msr_bitmap: msrs.address(),
        cell: None,
    });
    *root = Some(Root { tables, ports });
    then(frames)
}

impl Ownership {
    /// Copies what Linux has at `address`.
    pub fn read<T: AnyBits + Copy>(&self, address: PhysAddr) -> Result<T, Refusal> {
        if !address.is_aligned(8) || !self.root_owns(address, size_of::<T>() as u64) {
            return Err(Refusal::Invalid);
        }
        // SAFETY: RAM that the root cell has, so none of the hypervisor's.
        Ok(unsafe { direct_map::read_once(address) })
    }

    /// Tells whether all of it is RAM that Linux has.
    fn root_owns(&self, address: PhysAddr, size: u64) -> bool {
        self.root
            .as_ref()
            .is_some_and(|root| linux_memory::owns(&root.tables, &self.frames, address, size))
    }

    /// Makes the nested tables of Linux reach `address`, which it touched and which they did not
    /// allow. True if they do now: the address lies in space that they did not reach yet, or the
    /// processor had an old translation.
    pub fn reach(&mut self, local: &mut Local, address: GuestAddr, write: bool) -> bool {
        let Self { frames, root: Some(root), .. } = self else { return false };
        match root.tables.tables().lookup(frames, address) {
            Some(leaf) => {
                local.vcpu().flush();
                leaf.access.write || !write
            }
            None => root.tables.extend(frames, address).is_ok(),
        }
    }

    /// The IOMMUs, and what Linux has.
    fn iommus(&mut self) -> Option<(&mut Iommus, LinuxMemory<'_>)> {
        let Self { frames, root: Some(root), iommus, devices, .. } = self else { return None };
        Some((iommus, LinuxMemory { frames, tables: &mut root.tables, devices }))
    }

    /// Takes the IOMMUs over that Linux uses. No CPU of Linux runs meanwhile, and none goes on with
    /// cached translations.
    pub fn take_iommus(&mut self, cpus: &impl Cpus) {
        let Some((iommus, mut memory)) = self.iommus() else { return };
        iommus.take(cpus, &mut memory);
    }

    /// Tells whether there is an IOMMU that is not taken over.
    pub fn lacks_iommus(&self) -> bool {
        self.iommus.any_untaken()
    }

    /// Tells whether an IOMMU is taken over.
    pub fn has_iommus(&self) -> bool {
        self.iommus.any_taken()
    }

    /// Gives the IOMMUs back. No CPU of Linux runs meanwhile.
    pub fn give_iommus_back(&mut self) {
        let Some((iommus, mut memory)) = self.iommus() else { return };
        iommus.give_back(&mut memory);
    }

    /// Has IOMMUs interrupt nobody in Linux's name but whom they may, after CPUs changed their
    /// owner.
    pub fn check_iommus(&mut self, cpus: &impl Cpus) {
        let Some((iommus, mut memory)) = self.iommus() else { return };
        iommus.owners_changed(cpus, &mut memory);
    }

    /// Has Linux's devices reach memory that it got back. No CPU of Linux runs meanwhile, and none
    /// goes on with cached translations.
    pub fn give_memory_to_devices(&mut self, cpus: &impl Cpus) {
        let Some((iommus, mut memory)) = self.iommus() else { return };
        iommus.look_again(cpus, &mut memory);
    }

    /// Has no device of Linux reach memory that was taken from it; false if an IOMMU does not
    /// react.
    pub fn take_memory_from_devices(&mut self, cpus: &impl Cpus) -> bool {
        let Some((iommus, mut memory)) = self.iommus() else { return true };
        iommus.finish_withdrawal(cpus, &mut memory)
    }

    /// Tells whether the page of `address` is a table by which Linux's devices translate, and
    /// whether a change there needs that no CPU of Linux runs, and none goes on with cached
    /// translations.
    pub fn device_table(&self, address: GuestAddr) -> Option<bool> {
        self.iommus.tells_of_tables(PhysAddr::of_root(address))
    }

    /// Changes the word of a table by which Linux's devices translate, in which `address` lies:
    /// `change` makes the new word of the old one, and may be asked again.
    pub fn change_device_table(
        &mut self,
        address: GuestAddr,
        mut change: impl FnMut(u64) -> u64,
    ) -> Written {
        let address = PhysAddr::of_root(address).align_down(8);
        let Some((iommus, mut memory)) = self.iommus() else { return Written::default() };
        // Only devices write there meanwhile.
        match memory.change_word(address, &mut change) {
            true => iommus.changed(&mut memory, address),
            false => Written::default(),
        }
    }

    /// Lets Linux write by itself to the table in the page of `address`, where devices find nothing
    /// meanwhile: for good if the `processor` translates by it as well, and until Linux tells an
    /// IOMMU something if not. False if devices do not translate by it.
    pub fn give_device_table_up(&mut self, address: GuestAddr, processor: bool) -> bool {
        let address = PhysAddr::of_root(address);
        let Some((iommus, mut memory)) = self.iommus() else { return false };
        let is_table = iommus.is_table(address);
        if is_table {
            iommus.give_up(&mut memory, address, processor);
        }
        is_table
    }

    /// Tells whether no CPU of Linux may run while it writes `value` to 32 bits of the registers of
    /// an IOMMU at `address`, and none may go on with cached translations.
    pub fn writes_tables(&mut self, address: GuestAddr, value: u32) -> bool {
        let Some((iommus, mut memory)) = self.iommus() else { return false };
        iommus.writes_tables(&mut memory, address, value)
    }

    /// Tells whether the 2 MiB block at `address` has to be [joined](Self::join) before a cell can
    /// have it.
    pub fn is_split(&self, address: PhysAddr) -> bool {
        self.root.as_ref().is_some_and(|root| root.tables.is_split(&self.frames, address))
    }

    /// Makes a block one again. No CPU of Linux runs meanwhile, and none goes on with cached
    /// translations.
    pub fn join(&mut self, address: PhysAddr) {
        if let Self { frames, root: Some(root), .. } = self {
            root.tables.join(frames, address);
        }
    }

    /// Reads 32 bits of the registers of an IOMMU for Linux; `address` is aligned. With them comes
    /// a fault of a device that Linux takes note of by this.
    pub fn read_iommu(&mut self, address: GuestAddr) -> (u32, Option<Fault>) {
        let Some((iommus, mut memory)) = self.iommus() else { return (!0, None) };
        iommus.read(address, &mut memory)
    }

    /// Carries out a write of Linux to 32 bits of the registers of an IOMMU; `address` is aligned.
    /// No CPU of Linux runs meanwhile if [`Self::writes_tables`] says so.
    pub fn write_iommu(&mut self, address: GuestAddr, value: u32, cpus: &impl Cpus) -> Written {
        let Some((iommus, mut memory)) = self.iommus() else { return Written::default() };
        iommus.write(address, value, cpus, &mut memory)
    }

    /// Carries out a store of Linux to the page of a function in configuration space; false if that
    /// is lost, since it would write a register that is not Linux's. `address` is a multiple of
    /// `size`.
    pub fn write_configuration(&mut self, address: GuestAddr, size: u8, value: u64) -> bool {
        configuration::store(PhysAddr::of_root(address), size, value, || self.kept())
    }

    /// Tells whether Linux's stores to the page at `page` of configuration space exit.
    pub fn keeps_configuration(&self, page: u64) -> bool {
        let address = PhysAddr::new(page);
        launch_info::configuration_pages().any(|one| one == address)
            || self.devices.keep_page(address)
    }

    /// Registers in configuration space that Linux may not write now.
    fn kept(&self) -> impl Iterator<Item = Configuration> {
        let of_iommus = launch_info::configurations().filter(|_| self.has_iommus());
        of_iommus.chain(self.devices.kept())
    }

    /// The I/O ports at which Linux's accesses exit now, beside those that reset the machine.
    fn watched_ports(&self) -> impl Iterator<Item = RangeInclusive<u16>> {
        let by_devices = (!self.devices.is_empty()).then_some(pci::PORTS);
        launch_info::watched_ports().chain(by_devices)
    }

    /// What each cell was made of.
    fn configs(&self) -> impl Iterator<Item = &Config> {
        self.cells.iter().flatten().map(|cell| &cell.config)
    }

    /// Makes a cell without memory.
    pub fn create(&mut self, config: &Config) -> Result<CellId, Refusal> {
        if self.watched_ports().any(|range| config.has_port_of(&range))
            || config
                .ports()
                .iter()
                .any(|range| self.devices.have_port_of(&(range.first..=range.last)))
            || cell::any_locked() && resets_machine(config)
        {
            return Err(Refusal::Owned);
        }
        self.configs().try_for_each(|other| config.check_against(other))?;
        let free = self.cells.iter().position(Option::is_none).and_then(CellId::new);
        let id = free.ok_or(Refusal::NoMemory)?;
        let cell = new_possessions(&mut self.frames, *config).ok_or(Refusal::NoMemory)?;
        let domain = Domain {
            nested_top: cell.tables.top(),
            port_bitmap: cell.ports.address(),
            msr_bitmap: cell.msrs.address(),
            cell: Some(id),
        };
        cell::get(id).set_up(config, &domain);
        if let Some(root) = &mut self.root {
            grants::set_root_ports(&mut *root.ports, config, true);
        }
        config.cpus().for_each(|cpu| cpu::get(cpu).assign(Some(id)));
        self.cells[id.get()] = Some(cell);
        report::cell_created(id, &config.name);
        cell::set_state(id, Some(lifecycle::State::Created));
        Ok(id)
    }

    /// Has Linux's accesses exit to ports that reset the machine. [`Refusal::Owned`] if another
    /// cell than `id` may use one of them.
    pub fn watch_resets(&mut self, id: CellId) -> Result<(), Refusal> {
        let Self { root: Some(root), cells, .. } = self else { return Err(Refusal::Invalid) };
        let mut others = cells.iter().enumerate().filter(|(index, _)| *index != id.get());
        if others.any(|(_, cell)| cell.as_ref().is_some_and(|cell| resets_machine(&cell.config))) {
            return Err(Refusal::Owned);
        }
        for range in launch_info::resets().iter().flat_map(Resets::ports) {
            permissions::trap_ports(&mut *root.ports, *range.start(), *range.end(), true);
        }
        Ok(())
    }

    /// Judges an access of Linux to ports of which one exits. What is to be carried out is that
    /// before the lock is released: what a write to configuration space touches depends on the
    /// writes before it.
    pub fn judge_ports(&mut self, access: &resets::Access) -> PortVerdict {
        let ports = access.ports();
        let is_alone = self.configs().any(|config| config.has_alone(&ports));
        if is_alone || self.devices.have_port_of(&ports) {
            return PortVerdict::Foreign;
        }
        if launch_info::smi_port().is_some_and(|port| ports.contains(&port)) {
            return PortVerdict::Absent;
        }
        if access.written.is_some() && configuration::is_kept(access, || self.kept()) {
            return PortVerdict::Kept;
        }
        match launch_info::resets() {
            Some(resets) if cell::any_locked() => PortVerdict::Watched(resets.judge(access)),
            _ => {
                self.forget_watched();
                match self.watched_ports().any(|range| ports_meet(&range, &ports)) {
                    true => PortVerdict::Watched(Verdict::Free),
                    false => PortVerdict::Again,
                }
            }
        }
    }

    /// Gives Linux the ports back that are not watched any more, as far as it has them.
    fn forget_watched(&mut self) {
        let resets = launch_info::resets();
        for port in resets.iter().flat_map(Resets::ports).chain([pci::PORTS]).flatten() {
            let is_watched = self.watched_ports().any(|range| range.contains(&port));
            let has_alone = self.configs().any(|config| config.has_alone(&(port..=port)));
            if let Some(root) = &mut self.root
                && !is_watched
                && !has_alone
            {
                permissions::trap_ports(&mut *root.ports, port, port, false);
            }
        }
    }

    /// Gives memory that Linux has to a cell.
    pub fn map(&mut self, id: CellId, region: &CheckedRegion) -> Result<(), Refusal> {
        if !self.root_owns(region.physical, region.size) {
            return Err(Refusal::Owned);
        }
        let Self { frames, root: Some(root), cells, stale, iommus, devices, .. } = self else {
            return Err(Refusal::Invalid);
        };
        if region.private {
            let reached = cells
                .iter()
                .flatten()
                .any(|cell| cell.tables.reaches(frames, region.physical, region.size));
            if reached || !root.tables.owns_block(frames, region.physical) {
                return Err(Refusal::Owned);
            }
        }
        let cell = cells[id.get()].as_mut().ok_or(Refusal::NoCell)?;
        map_region(frames, &mut cell.tables, region).map_err(refusal)?;
        if region.private {
            if let Err(error) = root.tables.take(frames, region.physical) {
                // It was mapped a moment ago.
                let _ = cell.tables.unmap(frames, region.cell_address, 2);
                return Err(refusal(error));
            }
            *stale = true;
            let mut memory = LinuxMemory { frames, tables: &mut root.tables, devices };
            iommus.withdraw(&mut memory, region.physical);
            // SAFETY: RAM that the root cell had and no cell reaches, so no Rust object lives in
            // it.
            unsafe { direct_map::clear(region.physical, region.size) };
            cell.private += region.size;
        } else {
            cell.shared += region.size;
        }
        report::cell_memory(id, cell.private, cell.shared);
        Ok(())
    }

    /// Checks a copy of `size` bytes from `source` of Linux to private memory of a cell at
    /// `address`.
    pub fn check_load(
        &self,
        id: CellId,
        address: GuestAddr,
        source: PhysAddr,
        size: u64,
    ) -> Result<Load, Refusal> {
        let within_block = |offset: u64| offset + size <= LARGE_PAGE_SIZE;
        let fits = size <= LOAD_MAX
            && within_block(address.offset_in(LARGE_PAGE_SIZE))
            && within_block(source.offset_in(LARGE_PAGE_SIZE));
        if !fits || !self.root_owns(source, size) {
            return Err(Refusal::Invalid);
        }
        let cell = self.cells[id.get()].as_ref().ok_or(Refusal::NoCell)?;
        let leaf = cell.tables.lookup(&self.frames, address).ok_or(Refusal::Invalid)?;
        if !leaf.private {
            return Err(Refusal::Invalid);
        }
        Ok(Load { to: leaf.physical + address.offset_in(leaf.size()), from: source, size })
    }

    /// Carries out a copy. No CPU of Linux may have cached translations of the memory: see
    /// [`Self::stale`].
    pub fn load(&mut self, load: &Load) {
        // SAFETY: `check_load` has found memory of guests at both places, and guests' memory never
        // becomes the hypervisor's; a private leaf is a whole block, which the bytes do not leave.
        unsafe { direct_map::copy(load.to, load.from, load.size) }
    }

    /// Takes a piece of memory of a cell back and clears it, if it was private. False if none is
    /// left.
    pub fn reclaim(&mut self, id: CellId) -> Result<bool, Refusal> {
        let Self { frames, root: Some(root), cells, .. } = self else {
            return Err(Refusal::Invalid);
        };
        let cell = cells[id.get()].as_mut().ok_or(Refusal::NoCell)?;
        let Some(leaf) = cell.tables.take_leaf(frames) else { return Ok(false) };
        if leaf.private {
            // SAFETY: RAM that was taken from the root cell, so no Rust object lives in it.
            unsafe { direct_map::clear(leaf.physical, leaf.size()) };
            // The block was taken from there, so its table exists and its place is free.
            root.tables.give_back(frames, leaf.physical).map_err(refusal)?;
            cell.private -= leaf.size();
        } else {
            cell.shared -= leaf.size();
        }
        report::cell_memory(id, cell.private, cell.shared);
        Ok(true)
    }

    /// Takes those pages out of the share window of a cell that `places` has bits for, at the 64
    /// places of `word`. The caller has the cell's CPUs forget them.
    pub fn leave_places(&mut self, id: CellId, word: u64, places: u64) -> Result<(), Refusal> {
        let start = place(word.checked_mul(64).ok_or(Refusal::Invalid)?)?;
        let Self { frames, cells, .. } = self;
        let cell = cells[id.get()].as_mut().ok_or(Refusal::NoCell)?;
        for bit in (0..64).filter(|bit| places >> bit & 1 != 0) {
            if cell.tables.unmap(frames, start + bit * PAGE_SIZE, 1).is_ok() {
                cell.shared -= PAGE_SIZE;
            }
        }
        report::cell_memory(id, cell.private, cell.shared);
        Ok(())
    }

    /// Tells whether a cell has a page at a place of its share window.
    pub fn holds_place(&self, id: CellId, number: u64) -> Result<bool, Refusal> {
        let cell = self.cells[id.get()].as_ref().ok_or(Refusal::NoCell)?;
        Ok(cell.tables.lookup(&self.frames, place(number)?).is_some())
    }

    /// Refuses with [`Refusal::Busy`] if a cell has memory.
    pub fn check_empty(&self, id: CellId) -> Result<(), Refusal> {
        let cell = self.cells[id.get()].as_ref().ok_or(Refusal::NoCell)?;
        if cell.private == 0 && cell.shared == 0 { Ok(()) } else { Err(Refusal::Busy) }
    }

    /// Forgets a cell without memory and functions. [`Refusal::Busy`] if a CPU runs it.
    pub fn destroy(&mut self, id: CellId) -> Result<(), Refusal> {
        self.check_empty(id)?;
        if self.device(id, 0).is_some() || !cell::get(id).retire() {
            return Err(Refusal::Busy);
        }
        let Self { frames, root, cells, .. } = self;
        let cell = cells[id.get()].take().ok_or(Refusal::NoCell)?;
        if let Some(root) = root {
            grants::set_root_ports(&mut *root.ports, &cell.config, false);
        }
        cell.tables.free(frames);
        // SAFETY: No CPU runs the cell, and none comes in any more.
        unsafe {
            frames.free(cell.ports);
            frames.free(cell.msrs);
        }
        cell.config.cpus().for_each(|cpu| cpu::get(cpu).assign(None));
        cell::set_state(id, None);
        Ok(())
    }

    /// Lets this CPU leave the hypervisor; no cell can be made with it any more. [`Refusal::Busy`]
    /// while there are cells, or CPUs that could not leave.
    pub fn release(&mut self, local: &mut Local) -> Result<Released, Refusal> {
        let parked = cpu::those(|cpu| cpu.owner() == Owner::Parked);
        if cell::any() || !parked.is_empty() {
            return Err(Refusal::Busy);
        }
        cpu::set_owner(local.index(), Owner::Outside);
        Ok(Released(()))
    }
}

/// What becomes of an access of Linux to ports of which one exits.
pub enum PortVerdict {
    /// A cell has one of them alone.
    Foreign,
    /// For Linux there is nothing.
    Absent,
    /// It would write a register in configuration space that is not Linux's.
    Kept,
    /// One of them is watched, and this becomes of it.
    Watched(Verdict),
    /// It does not exit any more.
    Again,
}

/// Tells whether a cell may use a port that resets the machine.
fn resets_machine(config: &Config) -> bool {
    launch_info::resets().iter().flat_map(Resets::ports).any(|range| config.has_port_of(&range))
}

/// Where a place of the share window begins.
fn place(number: u64) -> Result<GuestAddr, Refusal> {
    let is_place = number < PLACES as u64;
    is_place.then(|| GuestAddr::new(SHARE_WINDOW + number * PAGE_SIZE)).ok_or(Refusal::Invalid)
}

/// A copy into a cell that [`Ownership::check_load`] has allowed.
pub struct Load {
    to: PhysAddr,
    from: PhysAddr,
    size: u64,
}

/// Takes the frames for a cell.
fn new_possessions(frames: &mut Frames, config: Config) -> Option<Possessions> {
    let tables = NestedTables::new(frames);
    let ports: Option<PortBitmap> = frames.take();
    let msrs: Option<MsrBitmap> = frames.take();
    match (tables, ports, msrs) {
        (Some(tables), Some(mut ports), Some(mut msrs)) => {
            grants::fill_ports(&mut *ports, &config);
            let shares = grants::Shares {
                x2apic: launch_info::x2apic(),
                tsc_deadline: processor::has_tsc_deadline(),
                banks: processor::machine_check::banks(),
                spec_ctrl: processor::has_control(cpuid::EBX_IBRS)
                    || processor::has_control(cpuid::EBX_STIBP),
                pred_cmd: processor::has_control(cpuid::EBX_IBPB),
            };
            grants::fill_msrs(&mut *msrs, &config, shares);
            Some(Possessions { config, tables, ports, msrs, private: 0, shared: 0 })
        }
        (tables, ports, msrs) => {
            if let Some(tables) = tables {
                tables.free(frames);
            }
            // SAFETY: No CPU has run in the cell that was to be.
            ports.into_iter().for_each(|ports| unsafe { frames.free(ports) });
            // SAFETY: The same.
            msrs.into_iter().for_each(|msrs| unsafe { frames.free(msrs) });
            None
        }
    }
}

/// Maps a region in a cell's tables: all of it or, if that fails, nothing.
fn map_region(
    frames: &mut Frames,
    tables: &mut NestedTables<NestedFormat>,
    region: &CheckedRegion,
) -> Result<(), MapError> {
    let access = Access { write: region.write, execute: region.execute };
    let leaf = |level, offset| Leaf {
        physical: region.physical + offset,
        level,
        access,
        private: region.private,
    };
    let large = region.size == LARGE_PAGE_SIZE
        && region.cell_address.is_aligned(LARGE_PAGE_SIZE)
        && region.physical.is_aligned(LARGE_PAGE_SIZE);
    if large {
        return tables.map(frames, region.cell_address, leaf(2, 0));
    }
    for offset in (0..region.size).step_by(PAGE_SIZE as usize) {
        if let Err(error) = tables.map(frames, region.cell_address + offset, leaf(1, offset)) {
            for undone in (0..offset).step_by(PAGE_SIZE as usize) {
                // It was mapped a moment ago.
                let _ = tables.unmap(frames, region.cell_address + undone, 1);
            }
            return Err(error);
        }
    }
    Ok(())
}
