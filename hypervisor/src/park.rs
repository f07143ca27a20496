// SPDX-License-Identifier: MIT OR Apache-2.0
//! A CPU between two owners. Nothing of the old owner is left in it: its local APIC is as after a reset, its
//! floating-point state initial. It halts in the hypervisor until it is asked to run a cell, or until Linux starts it up.

use core::sync::atomic::Ordering;

use crate::arch::{CellStart, VirtualCpu};
use crate::local::{FLUSH, Local, START, START_UP};
use crate::machine::{self, Owner};
use crate::{apic, fpu};

/// The CPU has no owner any more.
pub fn enter(local: &mut Local) {
    apic::get().reset();
    fpu::reset();
    local.cell = None;
    local.nmi_wanted = false;
    local.console.clear();
    machine::set_owner(local.index, Owner::Parked);
}

/// The CPU leaves its cell, which has stopped or failed.
pub fn leave_cell(local: &mut Local) {
    let cell = local.cell.and_then(machine::cell);
    enter(local);
    if let Some(cell) = cell {
        cell.running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Waits for a new owner and loads its guest.
pub fn wait(local: &mut Local) {
    loop {
        let requests = local.cpu().requests.swap(0, Ordering::SeqCst);
        if requests & FLUSH != 0 {
            local.flush();
        }
        if requests & START != 0 && start_cell(local) {
            return;
        }
        if requests & START_UP != 0 && local.cpu().assigned().is_none() {
            let page = local.cpu().start_up_page.load(Ordering::SeqCst);
            machine::set_owner(local.index, Owner::Root);
            local.vcpu.start_up(&machine::ROOT.get(None), page);
            return;
        }
        if local.cpu().requests.load(Ordering::SeqCst) == 0 {
            local.wait_for_nmi();
        }
    }
}

/// Takes the CPU from Linux for the cell that it is assigned to. Refuses if it is not offline there: a CPU that waits
/// offline does so with interrupts off.
pub fn take(local: &mut Local) {
    if local.cell.is_some() || !local.cpu().assigned().is_some_and(machine::runs) {
        return;
    }
    if local.vcpu.interrupts_on() {
        local.cpu().refused.store(true, Ordering::SeqCst);
        return;
    }
    enter(local);
    if !start_cell(local) {
        wait(local);
    }
}

fn start_cell(local: &mut Local) -> bool {
    let Some(number) = local.cpu().assigned() else { return false };
    let Some(cell) = machine::cell(number) else { return false };
    let Some(index) = cell.cpus().position(|cpu| cpu == local.index) else { return false };
    // Whoever stops the cell and then finds no CPU counted knows that none comes in any more.
    cell.running.fetch_add(1, Ordering::SeqCst);
    if !machine::runs(number) {
        cell.running.fetch_sub(1, Ordering::SeqCst);
        return false;
    }
    let start = CellStart {
        entry: cell.entry.load(Ordering::SeqCst),
        page_table: cell.page_table.load(Ordering::SeqCst),
        argument: cell.argument.load(Ordering::SeqCst),
        index: index as u64,
    };
    local.vcpu.start_cell(&cell.domain.get(Some(number)), &start);
    local.cell = Some(number);
    machine::set_owner(local.index, Owner::Cell(number));
    true
}
