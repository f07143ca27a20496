// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupt commands, filtered: what Linux sends never reaches a CPU of a cell, what a cell sends never leaves it.
//!
//! No lock is taken. A CPU that is about to change its owner is marked first; then all CPUs of the root cell
//! are made to leave their guests once (see [`crate::management`]), after which no command that saw the old owner is under way.

use core::sync::atomic::Ordering;

use crtos_partition::cpuset::CpuSet;
use crtos_partition::icr::{self, Command, Delivery};

use crate::local::{self, Local};
use crate::machine::{self, Owner};
use crate::{apic, report};

/// Carries out an interrupt command of Linux.
pub fn root_command(local: &mut Local, command: Command) {
    let reach = |among: CpuSet| command.expand(local.index, &among, machine::apic_address);
    match command.delivery {
        // The one that is not rare: without building sets.
        Delivery::Fixed | Delivery::LowestPriority => {
            let targets = (0..machine::cpu_count()).filter(|index| {
                is_linux(machine::cpu(*index).owner())
                    && command.reaches(local.index, *index, machine::apic_address)
            });
            send(&command, targets);
        }
        Delivery::Nmi => {
            for index in reach(machine::cpus(|cpu| is_linux(cpu.owner()))).iter() {
                if index == local.index {
                    local.nmi_wanted = true;
                } else if machine::cpu(index).owner() == Owner::Outside {
                    apic::get().send(machine::apic_id(index), apic::ASSERT | apic::NMI);
                } else {
                    local::request(index, local::NMI);
                }
            }
        }
        // The deassertion of INIT has no effect.
        Delivery::Init if !command.assert => (),
        Delivery::Init | Delivery::StartUp => {
            for index in reach(machine::cpus(|cpu| cpu.assigned().is_none())).iter() {
                if index != local.index {
                    start_up(index, &command);
                }
            }
        }
        Delivery::Other => {
            let cpu = local.index;
            report::line(format_args!("cpu{cpu} root: interrupt command dropped: {command:?}"));
        }
    }
}

fn is_linux(owner: Owner) -> bool {
    matches!(owner, Owner::Root | Owner::Outside)
}

fn start_up(index: usize, command: &Command) {
    if machine::cpu(index).owner() == Owner::Outside {
        // It would run without the hypervisor, and could touch everything.
        report::line(format_args!("cpu{index} root: not started, it was offline at the launch"));
    } else if command.delivery == Delivery::Init {
        local::request(index, local::INIT);
    } else {
        machine::cpu(index).start_up_page.store(command.vector, Ordering::SeqCst);
        local::request(index, local::START_UP);
    }
}

/// Interrupts `targets` one by one; one of them if the lowest priority was asked for.
fn send(command: &Command, targets: impl Iterator<Item = usize>) {
    let count = if command.delivery == Delivery::LowestPriority { 1 } else { usize::MAX };
    for index in targets.take(count) {
        interrupt(machine::apic_id(index), command.vector);
    }
}

/// Raises `vector` on the CPU with this APIC id.
pub fn interrupt(apic_id: u32, vector: u8) {
    apic::get().send(apic_id, apic::ASSERT | u32::from(vector));
}

/// Raises the vector of a doorbell. Whoever rang waits for what happens there: a hint for processors whose
/// threads share a core, and for emulators whose virtual CPUs take turns.
pub fn doorbell(apic_id: u32, vector: u8) {
    interrupt(apic_id, vector);
    core::hint::spin_loop();
}

/// Whether a CPU of cell `number` has this APIC id.
fn is_colleague(number: usize, id: u32) -> bool {
    let has_id = |index: usize| {
        machine::apic_id(index) == id && machine::cpu(index).owner() == Owner::Cell(number)
    };
    machine::cell(number).is_some_and(|cell| cell.cpus().any(has_id))
}

/// Carries out an interrupt command of x2APIC mode of cell `number`; false if it names anybody else, or is of a kind that
/// cells have no use for.
pub fn cell_command(local: &mut Local, number: usize, value: u64) -> bool {
    // The command that is not rare. Ids are unique, so nobody else is named.
    if let Some((vector, id)) = icr::one_by_id(value)
        && is_colleague(number, id)
    {
        interrupt(id, vector);
        return true;
    }
    let command = Command::from_x2apic(value);
    let reach = |among: CpuSet| command.expand(local.index, &among, machine::apic_address);
    let own = machine::cpus(|cpu| cpu.owner() == Owner::Cell(number));
    let targets = reach(own);
    let foreign = !command.is_broadcast() && !reach(machine::cpus(|_| true)).is_subset(&own);
    if foreign || targets.is_empty() && !command.is_broadcast() {
        return false;
    }
    match command.delivery {
        Delivery::Fixed | Delivery::LowestPriority => send(&command, targets.iter()),
        Delivery::Nmi => {
            for index in targets.iter() {
                if index == local.index {
                    local.nmi_wanted = true;
                } else {
                    local::request(index, local::NMI);
                }
            }
        }
        Delivery::Init | Delivery::StartUp | Delivery::Other => return false,
    }
    true
}
