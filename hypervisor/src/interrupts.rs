// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupt commands, filtered: what Linux sends never reaches a CPU of a cell, what a cell sends
//! never leaves it.
//!
//! No lock is taken. A CPU that is about to change its owner is marked first; then all CPUs of the
//! root cell are made to leave their guests once (see [`crate::management`]), after which no
//! command that saw the old owner is under way.

use core::sync::atomic::Ordering;

use crtos_iommu::interrupt::Cpus;
use crtos_machine::cpu::{self, Owner, apic_address};
use crtos_machine::local::{self, Local, Request};
use crtos_machine::{apic, cell, launch_info, report};
use crtos_partition::cpuset::CpuSet;
use crtos_partition::icr::{self, Address, Command, Delivery};
use crtos_partition::ids::{ApicId, CellId, CpuIndex};
use crtos_partition::message::Message;
use crtos_partition::redirection::Redirection;

/// Carries out an interrupt command of Linux.
pub fn root_command(local: &mut Local, command: Command) {
    let sender = local.index();
    let reach = |among: CpuSet| command.expand(sender, &among, apic_address);
    match command.delivery {
        // The one that is not rare: without building sets.
        Delivery::Fixed | Delivery::LowestPriority => {
            let targets = launch_info::cpus().filter(|index| {
                cpu::get(*index).owner().is_linux() && command.reaches(sender, *index, apic_address)
            });
            send(&command, targets);
        }
        Delivery::Nmi => {
            for index in reach(cpu::those(|cpu| cpu.owner().is_linux())).iter() {
                if index == sender {
                    local.nmi_wanted = true;
                } else if cpu::get(index).owner() == Owner::Outside {
                    apic::get().nmi(launch_info::apic_id(index));
                } else {
                    local::request(index, Request::Nmi);
                }
            }
        }
        // The deassertion of INIT has no effect.
        Delivery::Init if !command.assert => (),
        Delivery::Init | Delivery::StartUp => {
            for index in reach(cpu::those(|cpu| cpu.assigned().is_none())).iter() {
                if index != sender {
                    start_up(index, &command);
                }
            }
        }
        Delivery::External | Delivery::Other => {
            report::line(format_args!("cpu{sender} root: interrupt command dropped: {command:?}"));
        }
    }
}

/// Carries out an INIT or a start-up for a CPU that belongs to no cell.
fn start_up(index: CpuIndex, command: &Command) {
    if cpu::get(index).owner() == Owner::Outside {
        // It would run without the hypervisor, and could touch everything.
        report::line(format_args!("cpu{index} root: not started, it was offline at the launch"));
    } else if command.delivery == Delivery::Init {
        local::request(index, Request::Init);
    } else {
        cpu::get(index).start_up_page.store(command.vector, Ordering::SeqCst);
        local::request(index, Request::StartUp);
    }
}

/// Interrupts `targets` one by one; one of them if the lowest priority was asked for.
fn send(command: &Command, targets: impl Iterator<Item = CpuIndex>) {
    let count = if command.delivery == Delivery::LowestPriority { 1 } else { usize::MAX };
    for index in targets.take(count) {
        apic::get().interrupt(launch_info::apic_id(index), command.vector);
    }
}

/// Raises the vector of a doorbell. Whoever rang waits for what happens there: a hint for
/// processors whose threads share a core, and for emulators whose virtual CPUs take turns.
#[inline]
pub fn doorbell(cpu: CpuIndex, vector: u8) {
    apic::get().interrupt(launch_info::apic_id(cpu), vector);
    core::hint::spin_loop();
}

/// Rings the doorbell of each cell that runs, on its first CPU.
pub fn ring_cells() {
    for (id, cell) in CellId::all().map(|id| (id, cell::get(id))).filter(|(id, _)| cell::runs(*id))
    {
        let first = cell.cpus().next();
        if let Some(cpu) = first.filter(|cpu| cpu::get(*cpu).owner() == Owner::Cell(id)) {
            doorbell(cpu, cell.vector(false));
        }
    }
}

/// Tells whether what a device sends reaches a CPU of a cell.
fn reaches_cell(command: &Command) -> bool {
    OfCells.foreign().any(|cpu| command.names(cpu))
}

/// Tells whether Linux may have an I/O APIC raise what this entry says.
pub fn may_raise(entry: Redirection) -> bool {
    entry.is_harmless(launch_info::x2apic(), reaches_cell)
}

/// Tells whether Linux may have a timer send this message.
pub fn may_send(message: Message) -> bool {
    message.is_harmless(launch_info::x2apic(), reaches_cell)
}

/// The CPUs of cells, for the IOMMUs. No cell asks for interrupts of Linux's devices.
pub struct OfCells;

impl Cpus for OfCells {
    fn foreign(&self) -> impl Iterator<Item = Address> {
        let cpus = launch_info::cpus();
        cpus.filter(|cpu| matches!(cpu::get(*cpu).owner(), Owner::Cell(_))).map(apic_address)
    }

    fn asked(&self, _: ApicId, _: u8) -> bool {
        false
    }
}

/// Tells whether a CPU of cell `cell` has this APIC id.
fn is_colleague(cell: CellId, apic: ApicId) -> bool {
    cell::get(cell).cpus().any(|index| {
        launch_info::apic_id(index) == apic && cpu::get(index).owner() == Owner::Cell(cell)
    })
}

/// Carries out an interrupt command of x2APIC mode of cell `cell`; false if it names anybody else,
/// or is of a kind that cells have no use for.
pub fn cell_command(local: &mut Local, cell: CellId, value: u64) -> bool {
    // The command that is not rare. Ids are unique, so nobody else is named.
    if let Some((vector, id)) = icr::one_by_id(value)
        && is_colleague(cell, id)
    {
        apic::get().interrupt(id, vector);
        return true;
    }
    let command = Command::from_x2apic(value);
    let sender = local.index();
    let reach = |among: CpuSet| command.expand(sender, &among, apic_address);
    let own = cpu::those(|cpu| cpu.owner() == Owner::Cell(cell));
    let targets = reach(own);
    let foreign = !command.is_broadcast() && !reach(cpu::those(|_| true)).is_subset(&own);
    if foreign || targets.is_empty() && !command.is_broadcast() {
        return false;
    }
    match command.delivery {
        Delivery::Fixed | Delivery::LowestPriority => send(&command, targets.iter()),
        Delivery::Nmi => {
            for index in targets.iter() {
                if index == sender {
                    local.nmi_wanted = true;
                } else {
                    local::request(index, Request::Nmi);
                }
            }
        }
        Delivery::Init | Delivery::StartUp | Delivery::External | Delivery::Other => return false,
    }
    true
}
