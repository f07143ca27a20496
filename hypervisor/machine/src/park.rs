// SPDX-License-Identifier: MIT OR Apache-2.0
//! A CPU between two owners. Nothing of the old owner is left in it: its local APIC and the
//! registers that an owner can write are as after a reset, its floating-point state initial, and
//! the next owner begins with an empty control block and without translations ([`crate::arch`]). It
//! halts in the hypervisor until it is asked to run a cell, or until Linux starts it up.

use core::sync::atomic::Ordering;

use crtos_abi::hypercall::DOORBELL_ANYWHERE;
use crtos_partition::lifecycle::State;
use crtos_partition::performance::{self, Registers};

use crate::arch::{CellStart, VirtualCpu};
use crate::cell::Cell;
use crate::cpu::{self, Owner};
use crate::local::{self, Local, Request, Requests};
use crate::processor::{fpu, msr};
use crate::{apic, cell, launch_info};

/// The registers of the CPU that executes this.
struct ThisCpu;

impl Registers for ThisCpu {
    fn read(&self, number: u32) -> Option<u64> {
        msr::read_for_guest(number)
    }

    fn write(&mut self, number: u32, value: u64) {
        msr::set_performance(number, value);
    }
}

/// Takes the CPU from its owner, and waits for a new one.
pub fn leave_root(local: &mut Local) {
    enter(local);
    wait(local);
}

/// Takes the CPU from its cell, which has stopped or failed, and waits for a new owner.
pub fn leave_cell(local: &mut Local) {
    let cell = local.cell();
    enter(local);
    if let Some(cell) = cell.map(cell::get) {
        cell.go_out();
        // Not before: from here on nothing of the cell changes any more.
        if cell.is_vacant() && cell.state() == Some(State::Failed) {
            tell_linux(cell);
        }
    }
    wait(local);
}

/// Has Linux hear the doorbell of a cell, to look at its state.
fn tell_linux(cell: &Cell) {
    let is_linux = |cpu| cpu::get(cpu).owner() == Owner::Root;
    if let Some((cpu, vector)) = cell.routes.target(DOORBELL_ANYWHERE, is_linux) {
        apic::get().interrupt(launch_info::apic_id(cpu), vector);
    }
}

/// Halts Linux, on all its CPUs and for good. False if it is halted already; then it may be about
/// to halt on this CPU.
pub fn halt_root(local: &mut Local) -> bool {
    if !cpu::set_root_halted() {
        return false;
    }
    let own = local.index();
    let others = cpu::those(|cpu| cpu.owner() == Owner::Root);
    others
        .iter()
        .filter(|index| *index != own)
        .for_each(|index| local::request(index, Request::Init));
    true
}

/// Carries out what other CPUs asked for. The CPU may have another guest afterwards.
#[inline]
pub(crate) fn serve(local: &mut Local) {
    loop {
        local.note_kick();
        let requests = local.take_requests();
        if requests.is_empty() {
            return;
        }
        carry_out(local, requests);
    }
}

fn carry_out(local: &mut Local, requests: Requests) {
    if requests.has(Request::Flush) {
        local.flush_while_held();
    }
    if requests.has(Request::Nmi) {
        local.nmi_wanted = true;
    }
    if requests.has(Request::Start) {
        take(local);
    }
    if requests.has(Request::Stop) && local.cell().is_some_and(|cell| !cell::runs(cell)) {
        leave_cell(local);
    }
    if requests.has(Request::Init) && local.cell().is_none() {
        // A start-up IPI may have come together with it. Without INIT it has no effect on a CPU
        // that runs.
        if requests.has(Request::StartUp) {
            local.cpu().requests.fetch_or(Request::StartUp as u32, Ordering::SeqCst);
        }
        leave_root(local);
    }
}

/// Makes the CPU nobody's.
fn enter(local: &mut Local) {
    // SAFETY: Whoever has `&mut Local` runs in host mode on its stack, with the descriptor tables
    // of the host.
    unsafe {
        apic::get().reset();
        msr::reset();
    }
    fpu::reset();
    local.set_cell(None);
    local.nmi_wanted = false;
    local.console.clear();
    cpu::set_owner(local.index(), Owner::Parked);
}

/// Waits for a new owner and loads its guest.
fn wait(local: &mut Local) {
    loop {
        let requests = local.take_requests();
        if requests.has(Request::Flush) {
            local.flush();
        }
        if requests.has(Request::Start) || requests.has(Request::StartUp) {
            // Devices of the last owner may have interrupted since it went.
            // SAFETY: In host mode on its stack, since the CPU waits.
            unsafe { apic::get().reset() };
        }
        if requests.has(Request::Start) && start_cell(local) {
            return;
        }
        if requests.has(Request::StartUp)
            && !cpu::root_is_halted()
            && local.cpu().assigned().is_none()
            && let Some(domain) = cell::ROOT.get(None)
        {
            let page = local.cpu().start_up_page.load(Ordering::SeqCst);
            if let Some(before) = local.performance.take() {
                performance::give_back(&mut ThisCpu, before);
            }
            cpu::set_owner(local.index(), Owner::Root);
            // SAFETY: In host mode, since the CPU waits; nobody owned it; the domain of the root
            // cell stays for ever.
            unsafe { local.vcpu().start_up(&domain, page) };
            return;
        }
        if local.cpu().requests.load(Ordering::SeqCst) == 0 {
            local.wait_for_nmi();
        }
    }
}

/// Takes the CPU from Linux for the cell that it is assigned to. Refuses if it is not offline
/// there: a CPU that waits offline does so with interrupts off.
fn take(local: &mut Local) {
    if local.cell().is_some() || !local.cpu().assigned().is_some_and(cell::runs) {
        return;
    }
    if local.vcpu().interrupts_on() {
        local.cpu().refused.store(true, Ordering::SeqCst);
        return;
    }
    enter(local);
    if !start_cell(local) {
        wait(local);
    }
}

/// Loads the guest of the cell that the CPU is assigned to; false if that does not run.
fn start_cell(local: &mut Local) -> bool {
    let Some(id) = local.cpu().assigned() else { return false };
    let cell = cell::get(id);
    let Some(index) = cell.cpus().position(|cpu| cpu == local.index()) else { return false };
    // Whoever stops the cell and then finds no CPU counted knows that none comes in any more.
    cell.come_in();
    let domain = if cell::runs(id) { cell.domain.get(Some(id)) } else { None };
    let Some(domain) = domain else {
        cell.go_out();
        return false;
    };
    if local.performance.is_none() {
        local.performance = Some(performance::raise(&mut ThisCpu));
    }
    let start = CellStart { start: cell.start(), index: index as u64 };
    // SAFETY: In host mode, since the CPU waits; nobody owned it; the domain stays while the CPU is
    // counted.
    unsafe { local.vcpu().start_cell(&domain, &start) };
    local.set_cell(Some(id));
    cpu::set_owner(local.index(), Owner::Cell(id));
    true
}
