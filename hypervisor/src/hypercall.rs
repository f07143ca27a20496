// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls from guests (see [`crtos_abi::hypercall`]).

use core::sync::atomic::Ordering;

use crtos_abi::ABI_VERSION;
use crtos_abi::hypercall::{
    HC_CELL_CREATE, HC_CELL_DESTROY, HC_CELL_LOAD, HC_CELL_MAP, HC_CELL_RECLAIM, HC_CELL_START,
    HC_CELL_STOP, HC_DOORBELL, HC_DOORBELL_ROUTE, HC_LEAVE, HC_PUTC, HC_VERSION, HV_BUSY,
    HV_DENIED, HV_INVALID, HV_NO_CALL, HV_NO_CELL,
};
use crtos_partition::lifecycle::State;

use crate::arch::VirtualCpu;
use crate::local::Local;
use crate::machine::{self, Owner};
use crate::{cell, interrupts, management};

/// Number and arguments of a call.
fn arguments(local: &mut Local) -> (u64, [u64; 4]) {
    let registers = local.vcpu.registers();
    (registers[0], [registers[7], registers[6], registers[2], registers[10]])
}

/// A call of Linux. `None`: the hypervisor has to leave this CPU.
pub fn root(local: &mut Local) -> Option<i64> {
    let (call, arguments) = arguments(local);
    if local.vcpu.privilege() != 0 {
        return Some(HV_DENIED);
    }
    if call == HC_LEAVE {
        return management::release_cpu(local).err();
    }
    Some(root_call(local, call, arguments).unwrap_or_else(|error| error))
}

fn root_call(local: &mut Local, call: u64, arguments: [u64; 4]) -> Result<i64, i64> {
    let [first, second, third, fourth] = arguments;
    let cell = usize::try_from(first).unwrap_or(usize::MAX);
    match call {
        HC_VERSION => Ok(ABI_VERSION.into()),
        HC_CELL_CREATE => management::create(local, first),
        HC_CELL_MAP => management::map(local, cell, second),
        HC_CELL_LOAD => management::load(local, cell, second, third, fourth),
        HC_CELL_START => management::start(local, cell, second, third, fourth),
        HC_CELL_STOP => management::stop(local, cell),
        HC_CELL_RECLAIM => management::reclaim(local, cell),
        HC_CELL_DESTROY => management::destroy(local, cell),
        HC_DOORBELL_ROUTE => management::route(cell, second, third, fourth),
        HC_DOORBELL => ring_cell(local, cell, second),
        HC_PUTC => Err(HV_DENIED),
        _ => Err(HV_NO_CALL),
    }
}

/// A call of cell `number`.
pub fn cell(local: &mut Local, number: usize) -> i64 {
    let (call, [first, ..]) = arguments(local);
    let Some(cell) = machine::cell(number) else { return HV_NO_CELL };
    if local.vcpu.privilege() != 0 {
        return HV_DENIED;
    }
    match call {
        HC_VERSION => ABI_VERSION.into(),
        HC_DOORBELL => ring_root(local, cell, first),
        HC_PUTC => {
            cell::put_byte(local, cell, first as u8);
            0
        }
        HC_LEAVE..=HC_DOORBELL_ROUTE => HV_DENIED,
        _ => HV_NO_CALL,
    }
}

/// Rings the doorbell of a cell on its CPU number `index`.
fn ring_cell(local: &mut Local, number: usize, index: u64) -> Result<i64, i64> {
    let cell = machine::cell(number).ok_or(HV_NO_CELL)?;
    let state = cell.state().ok_or(HV_NO_CELL)?;
    let cpu = cell.cpus().nth(usize::try_from(index).unwrap_or(usize::MAX)).ok_or(HV_INVALID)?;
    if state != State::Running || machine::cpu(cpu).owner() != Owner::Cell(number) {
        return Err(HV_BUSY);
    }
    local.count_doorbell();
    interrupts::doorbell(machine::apic_id(cpu), cell.doorbell_vector.load(Ordering::Relaxed));
    Ok(0)
}

/// Rings the doorbell of the root cell on its CPU `named`, or where it wants to hear this cell otherwise.
fn ring_root(local: &mut Local, cell: &machine::Cell, named: u64) -> i64 {
    let is_linux = |cpu| machine::cpu(cpu).owner() == Owner::Root;
    let Some((cpu, vector)) = cell.routes.target(named, is_linux) else { return HV_BUSY };
    local.count_doorbell();
    interrupts::doorbell(machine::apic_id(cpu), vector);
    0
}
