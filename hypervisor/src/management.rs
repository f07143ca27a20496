// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creating, filling, starting, stopping and destroying cells: calls of Linux, one at a time.
//!
//! Whatever Linux passes is copied once, then checked, then used. Memory that a cell gets as its own is removed from Linux's nested
//! tables; before the cell gets content or runs, every CPU of Linux has dropped its cached translations. The same
//! round makes sure that no interrupt command is under way that still saw a CPU of the cell as Linux's.

use core::sync::atomic::Ordering;

use crtos_abi::cell::{CellConfig, MSR_READ, MSR_WRITE, PORT_EXCLUSIVE, Region};
use crtos_abi::hypercall::{HV_BUSY, HV_INVALID, HV_NO_CELL, HV_NO_MEMORY, HV_OWNED, HV_TIMEOUT};
use crtos_abi::{LARGE_PAGE_SIZE, MAX_CELLS, PAGE_SIZE};
use crtos_partition::config::{CELL_ADDRESS_END, CheckedRegion, Config};
use crtos_partition::lifecycle::{Event, State};
use crtos_partition::nested::{Access, Leaf, MapError, NestedTables, RootTables};
use crtos_partition::permissions::{self, MSR_BITMAP_SIZE, PORT_BITMAP_SIZE};
use spin::{Mutex, MutexGuard};

use crate::apic::{COMMAND, MSR_APIC_BASE, X2APIC_BASE};
use crate::arch::{Domain, NestedFormat, Vcpu, VirtualCpu};
use crate::local::{self, FLUSH_GENERATION, Local};
use crate::machine::{self, Owner};
use crate::memory::{self, Memory};
use crate::{cell, host, report};

/// How long a CPU may take to react.
const REACTION_MS: u64 = 2000;
/// Most bytes of one [`load`].
const LOAD_MAX: u64 = 0x1_0000;
/// Interrupt controllers and messages to them: no cell may have this as memory.
const INTERRUPT_PAGES: core::ops::Range<u64> = 0xfec0_0000..0xff00_0000;

const PORT_FRAMES: usize = PORT_BITMAP_SIZE / PAGE_SIZE as usize;
const MSR_FRAMES: usize = MSR_BITMAP_SIZE / PAGE_SIZE as usize;

/// Registers that every cell has: segment bases, system-call entry, PAT, TSC_AUX.
const CELL_MSRS: [u32; 13] = [
    0x174,
    0x175,
    0x176,
    0x277,
    0xc000_0081,
    0xc000_0082,
    0xc000_0083,
    0xc000_0084,
    0xc000_0100,
    0xc000_0101,
    0xc000_0102,
    0xc000_0103,
    0xc000_0104,
];

struct Record {
    config: Config,
    tables: NestedTables<NestedFormat>,
    port_bitmap: u64,
    msr_bitmap: u64,
    private: u64,
    shared: u64,
}

/// What management calls work on.
pub struct Management {
    memory: Memory,
    root: Option<RootTables<NestedFormat>>,
    records: [Option<Record>; MAX_CELLS],
    /// Memory was taken from Linux whose translations may still be cached.
    stale: bool,
}

static MANAGEMENT: Mutex<Management> = Mutex::new(Management {
    memory: Memory::new(),
    root: None,
    records: [const { None }; MAX_CELLS],
    stale: false,
});

/// Takes the lock. The CPU serves requests while it waits.
fn lock(local: &mut Local) -> MutexGuard<'static, Management> {
    loop {
        if let Some(guard) = MANAGEMENT.try_lock() {
            return guard;
        }
        local.poll();
    }
}

/// A bitmap in the hypervisor's own frames.
fn bitmap(address: u64, size: usize) -> &'static mut [u8] {
    // SAFETY: The frames were taken for this bitmap; the lock makes this the only reference; the processor only reads.
    unsafe { core::slice::from_raw_parts_mut(memory::pointer(address), size) }
}

fn port_bitmap(address: u64) -> &'static mut [u8] {
    bitmap(address, PORT_BITMAP_SIZE)
}

fn msr_bitmap(address: u64) -> &'static mut [u8] {
    bitmap(address, MSR_BITMAP_SIZE)
}

/// Sets up the root cell; once, at launch. `add_memory` fills the pool; `reserve` are blocks to hide, `read_only`
/// pages to protect. `None` if memory does not suffice.
pub fn init<R>(
    add_memory: impl FnOnce(&mut Memory),
    end: u64,
    hidden: &[u64],
    read_only: impl Iterator<Item = u64>,
    then: impl FnOnce(&mut Memory) -> Option<R>,
) -> Option<R> {
    let mut guard = MANAGEMENT.lock();
    let Management { memory, root, .. } = &mut *guard;
    add_memory(memory);
    let mut tables = RootTables::new(memory, end.next_multiple_of(1 << 30))?;
    for block in hidden {
        tables.take(memory, *block).ok()?;
    }
    for page in read_only {
        tables.write_protect(memory, page).ok()?;
    }
    let domain = Domain {
        nested_top: tables.tables().top(),
        port_bitmap: memory.allocate(PORT_FRAMES, 1)?,
        msr_bitmap: memory.allocate(MSR_FRAMES, 1)?,
        cell: None,
    };
    let msrs = msr_bitmap(domain.msr_bitmap);
    for (msr, access) in Vcpu::ROOT_MSRS {
        permissions::trap_msr(msrs, *msr, *access, true);
    }
    permissions::trap_msr(msrs, MSR_APIC_BASE, MSR_WRITE, true);
    if machine::launch_info().x2apic != 0 {
        permissions::trap_msr(msrs, X2APIC_BASE + COMMAND, MSR_WRITE, true);
    }
    machine::ROOT.set(&domain);
    *root = Some(tables);
    then(memory)
}

/// Linux touched `address` and its nested tables did not allow it. True if they do now: the address lies in space that they did
/// not reach yet, or the processor had an old translation.
pub fn reach(local: &mut Local, address: u64, write: bool) -> bool {
    let mut guard = lock(local);
    let Management { memory, root: Some(root), .. } = &mut *guard else { return false };
    match root.tables().lookup(memory, address) {
        Some(leaf) => {
            local.vcpu.flush();
            leaf.access.write || !write
        }
        None => root.extend(memory, address).is_ok(),
    }
}

fn map_error(error: MapError) -> i64 {
    match error {
        MapError::NoMemory => HV_NO_MEMORY,
        MapError::Occupied => HV_INVALID,
        MapError::Absent => HV_OWNED,
    }
}

impl Management {
    /// Copies a `T` that Linux has at `address`.
    ///
    /// # Safety
    /// Every bit pattern is a valid `T`.
    unsafe fn read<T: Copy>(&self, address: u64) -> Result<T, i64> {
        let size = size_of::<T>() as u64;
        if !address.is_multiple_of(8) || !self.root_owns(address, size) {
            return Err(HV_INVALID);
        }
        // SAFETY: RAM of the root cell; the caller vouches for the type.
        Ok(unsafe { memory::read_once(address) })
    }

    /// Is all of it RAM that Linux has?
    fn root_owns(&self, address: u64, size: u64) -> bool {
        let end = machine::launch_info().memory_end.min(memory::DIRECT_END);
        let inside = address.checked_add(size).is_some_and(|last| last <= end);
        let device = address < INTERRUPT_PAGES.end && INTERRUPT_PAGES.start < address + size;
        inside
            && !device
            && self.root.as_ref().is_some_and(|root| root.owns(&self.memory, address, size))
    }

    fn record(&mut self, number: usize) -> Result<&mut Record, i64> {
        self.records.get_mut(number).and_then(Option::as_mut).ok_or(HV_NO_CELL)
    }
}

/// See [`crtos_abi::hypercall::HC_CELL_CREATE`].
pub fn create(local: &mut Local, config: u64) -> Result<i64, i64> {
    let mut guard = lock(local);
    // SAFETY: A structure of plain integers.
    let config: CellConfig = unsafe { guard.read(config)? };
    let caller = local.index;
    let config = Config::check(&config, |cpu| {
        cpu < machine::cpu_count()
            && cpu != caller
            && machine::apic_id(cpu) != u32::MAX
            && matches!(machine::cpu(cpu).owner(), Owner::Root | Owner::Parked | Owner::Cell(_))
    })?;
    guard.records.iter().flatten().try_for_each(|record| config.check_against(&record.config))?;
    let number = guard.records.iter().position(Option::is_none).ok_or(HV_NO_MEMORY)?;
    let record = new_record(&mut guard.memory, config).ok_or(HV_NO_MEMORY)?;

    let domain = Domain {
        nested_top: record.tables.top(),
        port_bitmap: record.port_bitmap,
        msr_bitmap: record.msr_bitmap,
        cell: Some(number),
    };
    if let Some(cell) = machine::cell(number) {
        cell.set_up(&config, &domain);
    }
    set_root_ports(&config, true);
    config.cpus().for_each(|cpu| machine::cpu(cpu).assign(Some(number)));
    guard.records[number] = Some(record);
    report::cell_created(number, &config.name);
    machine::set_cell_state(number, Some(State::Created));
    Ok(number as i64)
}

/// Lets this CPU leave the hypervisor; no cell can be made with it any more. Not while there are cells, or
/// CPUs that could not leave. See [`crtos_abi::hypercall::HC_LEAVE`].
pub fn release_cpu(local: &mut Local) -> Result<(), i64> {
    let _guard = lock(local);
    let parked = machine::cpus(|cpu| cpu.owner() == Owner::Parked);
    if machine::any_cell() || !parked.is_empty() {
        return Err(HV_BUSY);
    }
    machine::set_owner(local.index, Owner::Outside);
    Ok(())
}

fn new_record(memory: &mut Memory, config: Config) -> Option<Record> {
    let mut tables = NestedTables::new(memory);
    let ports = memory.allocate(PORT_FRAMES, 1);
    let msrs = memory.allocate(MSR_FRAMES, 1);
    if let (Some(_), Some(port_frames), Some(msr_frames)) = (&tables, ports, msrs) {
        fill_ports(port_bitmap(port_frames), &config);
        fill_msrs(msr_bitmap(msr_frames), &config);
        return tables.take().map(|tables| Record {
            config,
            tables,
            port_bitmap: port_frames,
            msr_bitmap: msr_frames,
            private: 0,
            shared: 0,
        });
    }
    if let Some(tables) = tables {
        tables.free(memory);
    }
    ports.into_iter().for_each(|address| memory.free(address, PORT_FRAMES));
    msrs.into_iter().for_each(|address| memory.free(address, MSR_FRAMES));
    None
}

fn fill_ports(bitmap: &mut [u8], config: &Config) {
    permissions::trap_all_ports(bitmap, true);
    for range in config.ports() {
        permissions::trap_ports(bitmap, range.first, range.last, false);
    }
}

fn fill_msrs(bitmap: &mut [u8], config: &Config) {
    const BOTH: u32 = MSR_READ | MSR_WRITE;
    permissions::trap_all_msrs(bitmap, true);
    CELL_MSRS.iter().for_each(|msr| permissions::trap_msr(bitmap, *msr, BOTH, false));
    for range in config.msrs() {
        for msr in range.first..=range.last {
            permissions::trap_msr(bitmap, msr, range.flags, false);
        }
    }
    if machine::launch_info().x2apic != 0 {
        for (list, access) in [(cell::APIC_READABLE, MSR_READ), (cell::APIC_WRITABLE, MSR_WRITE)] {
            for number in list.iter().flat_map(|(first, last)| *first..=*last) {
                permissions::trap_msr(bitmap, X2APIC_BASE + number, access, false);
            }
        }
    }
}

/// Takes the ports that a cell has alone from Linux, or gives them back.
fn set_root_ports(config: &Config, taken: bool) {
    let bitmap = port_bitmap(machine::ROOT.get(None).port_bitmap);
    for range in config.ports().iter().filter(|range| range.flags & PORT_EXCLUSIVE != 0) {
        permissions::trap_ports(bitmap, range.first, range.last, taken);
    }
}

/// See [`crtos_abi::hypercall::HC_CELL_MAP`].
pub fn map(local: &mut Local, number: usize, region: u64) -> Result<i64, i64> {
    let mut guard = lock(local);
    // SAFETY: A structure of plain integers.
    let region: Region = unsafe { guard.read(region)? };
    let end = machine::launch_info().memory_end.min(memory::DIRECT_END);
    let region = CheckedRegion::check(&region, end)?;
    machine::advance(number, Event::Map, || ())?;
    if !guard.root_owns(region.physical, region.size) {
        return Err(HV_OWNED);
    }
    let Management { memory, root: Some(root), records, stale } = &mut *guard else {
        return Err(HV_INVALID);
    };
    let access = Access { write: region.write, execute: region.execute };
    let leaf = |level, offset| Leaf {
        physical: region.physical + offset,
        level,
        access,
        private: region.private,
    };
    if region.private {
        let reached = records
            .iter()
            .flatten()
            .any(|record| record.tables.reaches(memory, region.physical, region.size));
        if reached || !root.owns_block(memory, region.physical) {
            return Err(HV_OWNED);
        }
    }
    let record = records.get_mut(number).and_then(Option::as_mut).ok_or(HV_NO_CELL)?;
    let large = region.size == LARGE_PAGE_SIZE
        && (region.cell_address | region.physical) % LARGE_PAGE_SIZE == 0;
    if large {
        record.tables.map(memory, region.cell_address, leaf(2, 0)).map_err(map_error)?;
    } else {
        for offset in (0..region.size).step_by(PAGE_SIZE as usize) {
            let guest = region.cell_address + offset;
            if let Err(error) = record.tables.map(memory, guest, leaf(1, offset)) {
                for undone in (0..offset).step_by(PAGE_SIZE as usize) {
                    // It was mapped a moment ago.
                    let _ = record.tables.unmap(memory, region.cell_address + undone, 1);
                }
                return Err(map_error(error));
            }
        }
    }
    if region.private {
        if let Err(error) = root.take(memory, region.physical) {
            // It was mapped a moment ago.
            let _ = record.tables.unmap(memory, region.cell_address, 2);
            return Err(map_error(error));
        }
        *stale = true;
        memory::clear(region.physical, region.size);
        record.private += region.size;
    } else {
        record.shared += region.size;
    }
    report::cell_memory(number, record.private, record.shared);
    Ok(0)
}

/// See [`crtos_abi::hypercall::HC_CELL_LOAD`].
pub fn load(
    local: &mut Local,
    number: usize,
    cell_address: u64,
    source: u64,
    size: u64,
) -> Result<i64, i64> {
    let mut guard = lock(local);
    machine::advance(number, Event::Load, || ())?;
    let within_block = |address: u64| address % LARGE_PAGE_SIZE + size <= LARGE_PAGE_SIZE;
    if size > LOAD_MAX || !within_block(cell_address) || !within_block(source) {
        return Err(HV_INVALID);
    }
    if !guard.root_owns(source, size) {
        return Err(HV_INVALID);
    }
    let Management { memory, records, stale, .. } = &mut *guard;
    let record = records.get(number).and_then(Option::as_ref).ok_or(HV_NO_CELL)?;
    let leaf = record.tables.lookup(memory, cell_address).ok_or(HV_INVALID)?;
    if !leaf.private {
        return Err(HV_INVALID);
    }
    if *stale {
        flush_linux(local)?;
        *stale = false;
    }
    memory::copy(leaf.physical + cell_address % leaf.size(), source, size);
    Ok(0)
}

/// Makes every CPU of Linux leave its guest and forget cached translations. The lock is held.
fn flush_linux(local: &mut Local) -> Result<(), i64> {
    let generation = FLUSH_GENERATION.fetch_add(1, Ordering::SeqCst) + 1;
    local.flush();
    let others = machine::cpus(|cpu| cpu.owner() == Owner::Root);
    let others = || others.iter().filter(|index| *index != local.index);
    others().for_each(|index| local::request(index, local::FLUSH));
    let deadline = cell::deadline(REACTION_MS);
    let done = |index: usize| {
        let cpu = machine::cpu(index);
        cpu.owner() != Owner::Root || cpu.flushed.load(Ordering::SeqCst) >= generation
    };
    while !others().all(done) {
        if host::tsc() > deadline {
            return Err(HV_TIMEOUT);
        }
        core::hint::spin_loop();
    }
    Ok(())
}

/// Waits until `done`, serving requests meanwhile.
fn wait_until(local: &mut Local, done: impl Fn() -> bool) -> Result<(), i64> {
    let deadline = cell::deadline(REACTION_MS);
    while !done() {
        if host::tsc() > deadline {
            return Err(HV_TIMEOUT);
        }
        local.poll();
    }
    Ok(())
}

/// See [`crtos_abi::hypercall::HC_CELL_START`].
pub fn start(
    local: &mut Local,
    number: usize,
    entry: u64,
    page_table: u64,
    argument: u64,
) -> Result<i64, i64> {
    let mut guard = lock(local);
    let cell = machine::cell(number).ok_or(HV_NO_CELL)?;
    if !page_table.is_multiple_of(PAGE_SIZE) || page_table >= CELL_ADDRESS_END {
        return Err(HV_INVALID);
    }
    check_vacant(number)?;
    let (before, _) = machine::advance(number, Event::Start, || ())?;
    cell.entry.store(entry, Ordering::SeqCst);
    cell.page_table.store(page_table, Ordering::SeqCst);
    cell.argument.store(argument, Ordering::SeqCst);

    // From here on no interrupt command of Linux reaches them; after the flush none is under way.
    for cpu in cell.cpus() {
        machine::cpu(cpu).refused.store(false, Ordering::SeqCst);
    }
    let owners: [Owner; crtos_abi::MAX_CELL_CPUS] = {
        let mut owners = [Owner::Parked; crtos_abi::MAX_CELL_CPUS];
        for (owner, cpu) in owners.iter_mut().zip(cell.cpus()) {
            *owner = machine::cpu(cpu).owner();
            machine::set_owner(cpu, Owner::Cell(number));
        }
        owners
    };
    let refused = || cell.cpus().any(|cpu| machine::cpu(cpu).refused.load(Ordering::SeqCst));
    let result = flush_linux(local).and_then(|()| {
        guard.stale = false;
        cell.cpus().for_each(|cpu| local::request(cpu, local::START));
        let all = cell.cpus().count() as u32;
        // The cell may run, fail and be gone again before we look.
        let failed = || cell.state() != Some(State::Running);
        wait_until(local, || cell.running.load(Ordering::SeqCst) == all || failed() || refused())
    });
    if result.is_ok() && !refused() {
        let name = cell.name();
        report::line(format_args!("cpu{} {name}: started at {entry:#x}", local.index));
        return Ok(0);
    }
    // Roll back: whoever came in goes out again, and nobody comes in any more.
    machine::set_cell_state(number, Some(before));
    // CPUs that did not come in were left out of the flush.
    guard.stale = true;
    stop_cpus(local, cell)?;
    for (owner, cpu) in owners.into_iter().zip(cell.cpus()) {
        if machine::cpu(cpu).owner() == Owner::Cell(number) {
            machine::set_owner(cpu, owner);
            local::request(cpu, local::FLUSH);
        }
    }
    Err(result.err().unwrap_or(HV_BUSY))
}

/// [`HV_BUSY`] while a CPU runs the cell: one that did not react in time to its stop may still do so.
fn check_vacant(number: usize) -> Result<(), i64> {
    let cell = machine::cell(number).ok_or(HV_NO_CELL)?;
    if cell.running.load(Ordering::SeqCst) == 0 { Ok(()) } else { Err(HV_BUSY) }
}

fn stop_cpus(local: &mut Local, cell: &machine::Cell) -> Result<(), i64> {
    cell.cpus().for_each(|cpu| local::request(cpu, local::STOP));
    wait_until(local, || cell.running.load(Ordering::SeqCst) == 0)
}

/// See [`crtos_abi::hypercall::HC_CELL_STOP`].
pub fn stop(local: &mut Local, number: usize) -> Result<i64, i64> {
    let _guard = lock(local);
    let cell = machine::cell(number).ok_or(HV_NO_CELL)?;
    let (before, _) = machine::advance(number, Event::Stop, || ())?;
    if matches!(before, State::Running | State::Failed) || check_vacant(number).is_err() {
        stop_cpus(local, cell)?;
        report::line(format_args!("cpu{} {}: stopped", local.index, cell.name()));
    }
    Ok(0)
}

/// See [`crtos_abi::hypercall::HC_CELL_RECLAIM`].
pub fn reclaim(local: &mut Local, number: usize) -> Result<i64, i64> {
    let mut guard = lock(local);
    check_vacant(number)?;
    machine::advance(number, Event::Reclaim, || ())?;
    let Management { memory, root: Some(root), records, .. } = &mut *guard else {
        return Err(HV_INVALID);
    };
    let record = records.get_mut(number).and_then(Option::as_mut).ok_or(HV_NO_CELL)?;
    let Some(leaf) = record.tables.take_leaf(memory) else { return Ok(0) };
    if leaf.private {
        memory::clear(leaf.physical, leaf.size());
        // The block was taken from there, so its table exists and its place is free.
        root.give_back(memory, leaf.physical).map_err(map_error)?;
        record.private -= leaf.size();
    } else {
        record.shared -= leaf.size();
    }
    report::cell_memory(number, record.private, record.shared);
    Ok(1)
}

/// See [`crtos_abi::hypercall::HC_CELL_DESTROY`].
pub fn destroy(local: &mut Local, number: usize) -> Result<i64, i64> {
    let mut guard = lock(local);
    let record = guard.record(number)?;
    if record.private != 0 || record.shared != 0 {
        return Err(HV_BUSY);
    }
    check_vacant(number)?;
    machine::advance(number, Event::Destroy, || ())?;
    let Management { memory, records, .. } = &mut *guard;
    let record = records.get_mut(number).and_then(Option::take).ok_or(HV_NO_CELL)?;
    set_root_ports(&record.config, false);
    record.tables.free(memory);
    memory.free(record.port_bitmap, PORT_FRAMES);
    memory.free(record.msr_bitmap, MSR_FRAMES);
    record.config.cpus().for_each(|cpu| machine::cpu(cpu).assign(None));
    machine::set_cell_state(number, None);
    Ok(0)
}

/// See [`crtos_abi::hypercall::HC_DOORBELL_ROUTE`].
pub fn route(number: usize, vector: u64, apic_id: u64, home: u64) -> Result<i64, i64> {
    let cell = machine::cell(number).ok_or(HV_NO_CELL)?;
    cell.state().ok_or(HV_NO_CELL)?;
    let linux = machine::cpus(|cpu| cpu.owner() == Owner::Root);
    let known = linux.iter().find(|&cpu| u64::from(machine::apic_id(cpu)) == apic_id);
    let vector = u8::try_from(vector).ok().filter(|vector| matches!(vector, 0 | 32..));
    let (Some(cpu), Some(vector), 0..=1) = (known, vector, home) else { return Err(HV_INVALID) };
    cell.routes.set(cpu, vector);
    if home == 1 {
        cell.routes.set_home(cpu);
    }
    Ok(0)
}
