// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creating, filling, starting, stopping and destroying cells: calls of Linux, one at a time.
//!
//! Whatever Linux passes is copied once, then checked, then used. Memory that a cell gets as its
//! own is removed from Linux's nested tables; before the cell gets content or runs, every CPU of
//! Linux has dropped its cached translations. The same round makes sure that no interrupt command
//! is under way that still saw a CPU of the cell as Linux's.

use core::sync::atomic::Ordering;

use crtos_abi::{MAX_CELL_CPUS, PAGE_SIZE};
use crtos_machine::arch::Start;
use crtos_machine::cell::{self, Cell};
use crtos_machine::cpu::{self, Owner};
use crtos_machine::local::{self, Local, Request};
use crtos_machine::ownership::{self, Ownership, Released, lock};
use crtos_machine::{direct_map, launch_info, processor, report};
use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::config::{CELL_ADDRESS_END, CheckedRegion, Config};
use crtos_partition::error::Refusal;
use crtos_partition::ids::{ApicId, CellId};
use crtos_partition::lifecycle::{Event, State};

use crate::interrupts::OfCells;
use crate::{devices, linux, sources};

/// Makes the nested tables of Linux reach `address`, which it touched; false if it does not have
/// that memory.
pub fn reach(local: &mut Local, address: GuestAddr, write: bool) -> bool {
    lock(local).reach(local, address, write)
}

/// Lets this CPU leave the hypervisor. See [`crtos_abi::hypercall::HC_LEAVE`].
pub fn release_cpu(local: &mut Local) -> Result<Released, Refusal> {
    let mut ownership = lock(local);
    if !cell::any() && ownership.has_iommus() {
        give_iommus_back(local, &mut ownership)?;
    }
    ownership.release(local)
}

/// Creates a cell. See [`crtos_abi::hypercall::HC_CELL_CREATE`].
pub fn create(local: &mut Local, config: PhysAddr) -> Result<CellId, Refusal> {
    let mut ownership = lock(local);
    // A CPU that has left could touch the cell's memory. None leaves while there is a cell.
    if !cpu::those(|cpu| cpu.owner() == Owner::Outside).is_empty() {
        return Err(Refusal::Denied);
    }
    let caller = local.index();
    let config = Config::check(&ownership.read(config)?, |index| {
        index.get() < launch_info::cpu_count() && index != caller && launch_info::exists(index)
    })?;
    if ownership.lacks_iommus() {
        let _hold = linux::hold(local)?;
        ownership.take_iommus(&OfCells);
        ownership.renew_lines(&OfCells);
    }
    ownership.create(&config)
}

/// Gives memory to a cell. See [`crtos_abi::hypercall::HC_CELL_MAP`].
pub fn map(local: &mut Local, cell: CellId, region: PhysAddr) -> Result<(), Refusal> {
    let mut ownership = lock(local);
    let region = CheckedRegion::check(&ownership.read(region)?, direct_map::memory_end());
    if !(region.as_ref().is_ok_and(|region| region.in_window) && cell::runs(cell)) {
        cell::advance(cell, Event::Map)?;
    } else if !cell::get(cell).has_forgotten_left() {
        return Err(Refusal::Busy);
    }
    let region = region?;
    if region.private && ownership.is_split(region.physical) {
        let _hold = linux::hold(local)?;
        ownership.join(region.physical);
    }
    ownership.map(cell, &region)
}

/// Copies into memory of a cell. See [`crtos_abi::hypercall::HC_CELL_LOAD`].
pub fn load(
    local: &mut Local,
    cell: CellId,
    to: GuestAddr,
    from: PhysAddr,
    size: u64,
) -> Result<(), Refusal> {
    let mut ownership = lock(local);
    cell::advance(cell, Event::Load)?;
    let load = ownership.check_load(cell, to, from, size)?;
    if ownership.stale {
        linux::flush(local, linux::cpus())?;
        take_memory_from_devices(&mut ownership)?;
        ownership.stale = false;
    }
    ownership.load(&load);
    Ok(())
}

/// Has no device of Linux reach memory that was taken from it.
fn take_memory_from_devices(ownership: &mut Ownership) -> Result<(), Refusal> {
    if ownership.take_memory_from_devices(&OfCells) { Ok(()) } else { Err(Refusal::Timeout) }
}

/// Waits until `done`, serving requests meanwhile.
fn wait_until(local: &mut Local, done: impl Fn() -> bool) -> Result<(), Refusal> {
    let deadline = processor::deadline(linux::REACTION_MS);
    while !done() {
        if processor::tsc() > deadline {
            return Err(Refusal::Timeout);
        }
        local.poll();
    }
    Ok(())
}

/// Starts a cell. See [`crtos_abi::hypercall::HC_CELL_START`].
pub fn start(local: &mut Local, id: CellId, start: Start) -> Result<(), Refusal> {
    let mut ownership = lock(local);
    let cell = cell::get(id);
    let page_table = start.page_table;
    if !page_table.is_aligned(PAGE_SIZE) || page_table.get() >= CELL_ADDRESS_END {
        return Err(Refusal::Invalid);
    }
    check_vacant(cell)?;
    cell::advance(id, Event::Start)?;
    cell.set_start(start);

    // The cell's own are among them: one that is not offline in Linux goes on there until it
    // refuses, while others run the cell already.
    let linux = linux::cpus();
    // From here on no interrupt command of Linux reaches them; after the flush none is under way.
    for index in cell.cpus() {
        cpu::get(index).refused.store(false, Ordering::SeqCst);
    }
    let mut owners = [Owner::Parked; MAX_CELL_CPUS];
    for (owner, index) in owners.iter_mut().zip(cell.cpus()) {
        *owner = cpu::get(index).owner();
        cpu::set_owner(index, Owner::Cell(id));
    }
    // Nor does a device, an I/O APIC or a timer.
    ownership.check_iommus(&OfCells);
    let silenced = sources::silence(&mut ownership);
    if silenced > 0 {
        let (cpu, name) = (local.index(), cell.name());
        report::line(format_args!("cpu{cpu} {name}: {silenced} sources of interrupts silenced"));
    }
    let refused = || cell.cpus().any(|index| cpu::get(index).refused.load(Ordering::SeqCst));
    let result = linux::flush(local, linux).and_then(|()| {
        take_memory_from_devices(&mut ownership)?;
        ownership.stale = false;
        devices::connect(local, &mut ownership, id)?;
        cell.cpus().for_each(|index| local::request(index, Request::Start));
        let all = cell.cpus().count() as u32;
        // The cell may run, fail and be gone again before we look.
        let failed = || !cell::runs(id);
        wait_until(local, || cell.running() == all || failed() || refused())
    });
    if result.is_ok() && !refused() {
        let (cpu, name, entry) = (local.index(), cell.name(), start.entry);
        report::line(format_args!("cpu{cpu} {name}: started at {entry:#x}"));
        return Ok(());
    }
    // Whoever came in goes out again, and nobody comes in any more. It counts as having run.
    cell::set_state(id, Some(State::Stopped));
    // A CPU that does not react has not flushed.
    ownership.stale = true;
    stop_cpus(local, cell)?;
    devices::disconnect(local, &mut ownership, id)?;
    for (owner, index) in owners.into_iter().zip(cell.cpus()) {
        if cpu::get(index).owner() == Owner::Cell(id) {
            cpu::set_owner(index, owner);
        }
    }
    Err(result.err().unwrap_or(Refusal::Busy))
}

/// Refuses with [`Refusal::Busy`] while a CPU runs the cell: one that did not react in time to its
/// stop may still do so. With [`Refusal::Locked`] if nobody could stop it.
fn check_vacant(cell: &Cell) -> Result<(), Refusal> {
    match cell.state() {
        Some(State::Locked) => Err(Refusal::Locked),
        _ if cell.is_vacant() => Ok(()),
        _ => Err(Refusal::Busy),
    }
}

fn stop_cpus(local: &mut Local, cell: &Cell) -> Result<(), Refusal> {
    cell.cpus().for_each(|index| local::request(index, Request::Stop));
    // Who rings the cell has seen that it has its CPUs.
    wait_until(local, || cell.is_vacant() && cell.rings.load(Ordering::SeqCst) == 0)
}

/// Stops a cell. See [`crtos_abi::hypercall::HC_CELL_STOP`].
pub fn stop(local: &mut Local, id: CellId) -> Result<(), Refusal> {
    let mut ownership = lock(local);
    let cell = cell::get(id);
    let (before, _) = cell::advance(id, Event::Stop)?;
    if matches!(before, State::Running | State::Failed) || check_vacant(cell).is_err() {
        stop_cpus(local, cell)?;
        report::line(format_args!("cpu{} {}: stopped", local.index(), cell.name()));
    }
    devices::disconnect(local, &mut ownership, id)
}

/// Locks a cell. See [`crtos_abi::hypercall::HC_CELL_LOCK`].
pub fn lock_cell(local: &mut Local, id: CellId) -> Result<(), Refusal> {
    let mut ownership = lock(local);
    if !cell::runs(id) {
        // Says why.
        return cell::advance(id, Event::Lock).map(|_| ());
    }
    ownership.watch_resets(id)?;
    // From here on no CPU of Linux has an older map of ports. If the cell is not locked in the end,
    // Linux gets them back as after an unlock.
    linux::flush(local, linux::cpus())?;
    cell::advance(id, Event::Lock)?;
    report::line(format_args!("cpu{} {}: locked", local.index(), cell::get(id).name()));
    Ok(())
}

/// Unlocks a cell, which asks for that. See [`crtos_abi::hypercall::HC_CELL_UNLOCK`].
pub fn unlock_cell(local: &mut Local, id: CellId) -> Result<(), Refusal> {
    cell::advance(id, Event::Unlock)?;
    report::line(format_args!("cpu{} {}: unlocked", local.index(), cell::get(id).name()));
    reset_if_unlocked();
    Ok(())
}

/// Resets the machine if Linux was halted because it wanted that, and no cell is locked any more.
pub fn reset_if_unlocked() {
    // Whoever halts Linux looks here afterwards, and whoever unlocks a cell; one of them sees both.
    if cpu::root_is_halted() && !cell::any_locked() {
        report::line(format_args!("hypervisor: no cell is locked any more: the machine is reset"));
        processor::reset_machine();
    }
}

/// Takes a piece of memory of a cell back; false if none is left. See
/// [`crtos_abi::hypercall::HC_CELL_RECLAIM`].
pub fn reclaim(local: &mut Local, id: CellId) -> Result<bool, Refusal> {
    let mut ownership = lock(local);
    check_vacant(cell::get(id))?;
    cell::advance(id, Event::Reclaim)?;
    // If that was not possible when the cell stopped.
    devices::disconnect(local, &mut ownership, id)?;
    let has_more = ownership.reclaim(id)?;
    if !has_more {
        cell::advance(id, Event::Empty)?;
    }
    Ok(has_more)
}

/// Tells whether a cell reaches a page at a place. See [`crtos_abi::hypercall::HC_PLACE_HELD`].
pub fn holds_place(local: &mut Local, id: CellId, place: u64) -> Result<bool, Refusal> {
    let holds = lock(local).holds_place(id, place)?;
    if holds || cell::get(id).has_forgotten_left() { Ok(holds) } else { Err(Refusal::Busy) }
}

/// Takes pages out of a cell's share window, which asks for that. See
/// [`crtos_abi::hypercall::HC_PLACES_LEAVE`].
pub fn leave_places(id: CellId, word: u64, places: u64) -> Result<(), Refusal> {
    let mut ownership = ownership::try_lock().ok_or(Refusal::Busy)?;
    ownership.leave_places(id, word, places)?;
    let cell = cell::get(id);
    cell.left.store(local::next_flush(), Ordering::SeqCst);
    cell.cpus().for_each(|index| local::request(index, Request::Flush));
    Ok(())
}

/// Forgets a cell without memory. See [`crtos_abi::hypercall::HC_CELL_DESTROY`].
pub fn destroy(local: &mut Local, id: CellId) -> Result<(), Refusal> {
    let mut ownership = lock(local);
    check_vacant(cell::get(id))?;
    ownership.check_empty(id)?;
    cell::advance(id, Event::Destroy)?;
    devices::remove_all(local, &mut ownership, id)?;
    ownership.destroy(id)?;
    if cell::any() {
        ownership.check_iommus(&OfCells);
        let _hold = linux::hold(local);
        ownership.give_memory_to_devices(&OfCells);
        return Ok(());
    }
    // If that fails, it is done when the hypervisor leaves.
    let _ = give_iommus_back(local, &mut ownership);
    Ok(())
}

/// Gives the IOMMUs back to Linux.
fn give_iommus_back(local: &mut Local, ownership: &mut Ownership) -> Result<(), Refusal> {
    let _hold = linux::hold(local)?;
    ownership.give_iommus_back();
    Ok(())
}

/// Makes two cells neighbours. See [`crtos_abi::hypercall::HC_CELL_LINK`].
pub fn link(local: &mut Local, one: CellId, other: Option<CellId>) -> Result<(), Refusal> {
    let _ownership = lock(local);
    let other = other.filter(|other| *other != one).ok_or(Refusal::NoCell)?;
    for id in [one, other] {
        if cell::get(id).state().ok_or(Refusal::NoCell)? == State::Locked {
            // Each neighbour may interrupt it as often as Linux.
            return Err(Refusal::Locked);
        }
    }
    cell::link(one, other);
    Ok(())
}

/// Says where the doorbells of a cell may ring. See [`crtos_abi::hypercall::HC_DOORBELL_ROUTE`].
pub fn route(id: CellId, vector: u64, apic: u64, home: u64) -> Result<(), Refusal> {
    let cell = cell::get(id);
    cell.state().ok_or(Refusal::NoCell)?;
    let apic = u32::try_from(apic).map(ApicId).map_err(|_| Refusal::Invalid)?;
    let linux = cpu::those(|cpu| cpu.owner() == Owner::Root);
    let known = linux.iter().find(|&index| launch_info::apic_id(index) == apic);
    let vector = u8::try_from(vector).ok().filter(|vector| matches!(vector, 0 | 32..));
    let (Some(cpu), Some(vector), 0..=1) = (known, vector, home) else {
        return Err(Refusal::Invalid);
    };
    cell.routes.set(cpu, vector);
    if home == 1 {
        cell.routes.set_home(cpu);
    }
    Ok(())
}
