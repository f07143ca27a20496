// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls from guests (see [`crtos_abi::hypercall`]).

use core::sync::atomic::Ordering;

use crtos_abi::ABI_VERSION;
use crtos_abi::hypercall::*;
use crtos_machine::arch::{Start, VirtualCpu};
use crtos_machine::cell::{self, Cell};
use crtos_machine::cpu::{self, Owner};
use crtos_machine::local::Local;
use crtos_machine::ownership::Released;
use crtos_machine::{launch_info, processor};
use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::budget::{self, Rate};
use crtos_partition::decode::{R10, RAX, RDI, RDX, RSI};
use crtos_partition::error::Refusal;
use crtos_partition::ids::{CellId, CpuIndex};

use crate::{console, devices, interrupts, management};

/// Number and arguments of a call.
#[inline]
fn arguments(local: &mut Local) -> (u64, [u64; 4]) {
    let registers = local.vcpu().registers();
    (registers[RAX], [registers[RDI], registers[RSI], registers[RDX], registers[R10]])
}

/// What follows from a call of Linux.
pub enum Outcome {
    /// Linux goes on with this result.
    Result(i64),
    /// The hypervisor leaves this CPU.
    Leave(Released),
}

/// Carries out a call of Linux.
pub fn root(local: &mut Local) -> Outcome {
    let (call, arguments) = arguments(local);
    let result = if local.vcpu().privilege() != 0 {
        Err(Refusal::Denied)
    } else if call == HC_LEAVE {
        match management::release_cpu(local) {
            Ok(released) => return Outcome::Leave(released),
            Err(refusal) => Err(refusal),
        }
    } else {
        root_call(local, call, arguments)
    };
    Outcome::Result(result.unwrap_or_else(Refusal::code))
}

fn root_call(local: &mut Local, call: u64, arguments: [u64; 4]) -> Result<i64, Refusal> {
    let [first, second, third, fourth] = arguments;
    let cell = || named(first).ok_or(Refusal::NoCell);
    match call {
        HC_VERSION => Ok(ABI_VERSION.into()),
        HC_CELL_CREATE => {
            management::create(local, PhysAddr::new(first)).map(|cell| cell.get() as i64)
        }
        HC_CELL_MAP => management::map(local, cell()?, PhysAddr::new(second)).map(|()| 0),
        HC_CELL_LOAD => {
            let (to, from) = (GuestAddr::new(second), PhysAddr::new(third));
            management::load(local, cell()?, to, from, fourth).map(|()| 0)
        }
        HC_CELL_START => {
            let page_table = GuestAddr::new(third);
            let start = Start { entry: second, page_table, argument: fourth };
            management::start(local, cell()?, start).map(|()| 0)
        }
        HC_CELL_STOP => management::stop(local, cell()?).map(|()| 0),
        HC_CELL_RECLAIM => management::reclaim(local, cell()?).map(i64::from),
        HC_CELL_DESTROY => management::destroy(local, cell()?).map(|()| 0),
        HC_DOORBELL_ROUTE => management::route(cell()?, second, third, fourth).map(|()| 0),
        HC_DOORBELL => ring_cell(local, cell()?, second, third != 0).map(|()| 0),
        HC_DEVICE_ADD => devices::add(local, cell()?, PhysAddr::new(second)).map(|()| 0),
        HC_DEVICE_REMOVE => devices::remove(local, cell()?, second).map(|()| 0),
        HC_LINE_ADD => devices::add_line(local, cell()?, second, third, fourth).map(|()| 0),
        HC_LINE_REMOVE => devices::remove_line(local, cell()?, second).map(|()| 0),
        HC_PLACE_HELD => management::holds_place(local, cell()?, second).map(i64::from),
        HC_CELL_LOCK => management::lock_cell(local, cell()?).map(|()| 0),
        HC_CELL_LINK => management::link(local, cell()?, named(second)).map(|()| 0),
        HC_ROOT_STATE => Ok(root_state()),
        // Of cells.
        _ if call <= HC_CELL_LINK => Err(Refusal::Denied),
        _ => Err(Refusal::NoCall),
    }
}

/// Carries out a call of cell `id`; returns its result, or `None` if it is too early for that call.
#[inline]
pub fn cell(local: &mut Local, id: CellId) -> Option<i64> {
    let (call, [first, second, third, fourth]) = arguments(local);
    let cell = cell::get(id);
    let result = if local.vcpu().privilege() != 0 {
        Err(Refusal::Denied)
    } else {
        match call {
            HC_VERSION => Ok(ABI_VERSION.into()),
            HC_DOORBELL if second != 0 => {
                ring_neighbour(local, id, named(second - 1), first)?.map(|()| 0)
            }
            HC_DOORBELL => ring_root(local, cell, first)?.map(|()| 0),
            HC_ADDRESS => {
                let seen = cell.address_of(PhysAddr::new(first)).ok_or(Refusal::Invalid);
                seen.map(|address| address.get() as i64)
            }
            HC_PUTC => {
                console::put_byte(local, cell, first as u8);
                Ok(0)
            }
            HC_ROOT_STATE => Ok(root_state()),
            HC_CELL_UNLOCK => management::unlock_cell(local, id).map(|()| 0),
            HC_DEVICE_LIST..=HC_DEVICE_INTERRUPT | HC_LINE_INTERRUPT..=HC_DEVICE_UNMAP => {
                devices::call(id, call, [first, second, third, fourth])
            }
            HC_PLACES_LEAVE => management::leave_places(id, first, second).map(|()| 0),
            // Of Linux.
            _ if call <= HC_CELL_LINK => Err(Refusal::Denied),
            _ => Err(Refusal::NoCall),
        }
    };
    Some(result.unwrap_or_else(Refusal::code))
}

/// The cell with that number.
fn named(number: u64) -> Option<CellId> {
    usize::try_from(number).ok().and_then(CellId::new)
}

/// What became of Linux.
fn root_state() -> i64 {
    if cpu::root_is_halted() { ROOT_HALTED } else { ROOT_RUNS }
}

/// Rings the doorbell of a cell on its CPU number `index`, for a link or something else.
fn ring_cell(local: &mut Local, id: CellId, index: u64, for_link: bool) -> Result<(), Refusal> {
    let cell = cell::get(id);
    cell.state().ok_or(Refusal::NoCell)?;
    let cpu = nth_cpu(cell, index).ok_or(Refusal::Invalid)?;
    // The owner is looked at behind the wait, in which it may change.
    wait_for_budget(cpu);
    if !cell::runs(id) || cpu::get(cpu).owner() != Owner::Cell(id) {
        return Err(Refusal::Busy);
    }
    local.count_doorbell();
    interrupts::doorbell(cpu, cell.vector(for_link));
    Ok(())
}

/// The CPU of a cell with that index there.
#[inline]
fn nth_cpu(cell: &Cell, index: u64) -> Option<CpuIndex> {
    cell.cpus().nth(usize::try_from(index).ok()?)
}

/// Waits until Linux may ring on `cpu` of a cell again: an interval for each CPU of Linux that
/// wants to. The time stamp counters of the CPUs agree; where they do not, this ends all the same.
#[inline]
fn wait_for_budget(cpu: CpuIndex) {
    let rate = budget::FOR_CELL.in_ticks(launch_info::get().tsc_khz);
    let mut now = processor::tsc();
    let end = processor::deadline(2);
    while !cpu::get(cpu).doorbells.take(now, rate) && now < end {
        core::hint::spin_loop();
        now = processor::tsc();
    }
}

/// Rings the doorbell of the root cell on its CPU `named`, or where it wants to hear this cell
/// otherwise. `None` if it has heard this cell too often.
#[inline]
fn ring_root(local: &mut Local, cell: &Cell, named: u64) -> Option<Result<(), Refusal>> {
    let is_linux = |cpu| cpu::get(cpu).owner() == Owner::Root;
    let Some((cpu, vector)) = cell.routes.target(named, is_linux) else {
        return Some(Err(Refusal::Busy));
    };
    ring(local, cell, cpu, vector, budget::FOR_LINUX).then_some(Ok(()))
}

/// Rings the doorbell of a cell, if that is a neighbour of cell `id`, on its CPU number `index`.
/// `None` if it has heard that one too often.
#[inline]
fn ring_neighbour(
    local: &mut Local,
    id: CellId,
    other: Option<CellId>,
    index: u64,
) -> Option<Result<(), Refusal>> {
    let Some(other) = other.filter(|other| cell::are_linked(id, *other)) else {
        return Some(Err(Refusal::Denied));
    };
    let target = cell::get(other);
    // Whoever stops it and then finds no ring under way knows that none sees its CPUs any more.
    target.rings.fetch_add(1, Ordering::SeqCst);
    let cpu = nth_cpu(target, index).filter(|cpu| cpu::get(*cpu).owner() == Owner::Cell(other));
    let rung = cpu
        .filter(|_| cell::runs(other))
        .map(|cpu| ring(local, cell::get(id), cpu, target.vector(true), budget::FOR_CELL));
    target.rings.fetch_sub(1, Ordering::SeqCst);
    rung.map_or(Some(Err(Refusal::Busy)), |rung| rung.then_some(Ok(())))
}

/// Raises a doorbell that `cell` rings on `cpu`; false if that has heard this cell too often.
#[inline]
fn ring(local: &mut Local, cell: &Cell, cpu: CpuIndex, vector: u8, rate: Rate) -> bool {
    let rate = rate.in_ticks(launch_info::get().tsc_khz);
    let may = cell.doorbells[cpu.get()].take(processor::tsc(), rate);
    if may {
        local.count_doorbell();
        interrupts::doorbell(cpu, vector);
    }
    may
}
