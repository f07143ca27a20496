// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exits of Linux. It runs as on the bare machine, except for what would break the partition: interrupt commands,
//! the virtualization technology, memory and ports of cells.

use crtos_partition::icr::Command;

use crate::apic::{COMMAND, MSR_APIC_BASE, X2APIC_BASE, XAPIC_PAGE};
use crate::arch::{Event, Exit, MsrOutcome, Vcpu, VirtualCpu};
use crate::local::Local;
use crate::{guest, host, hypercall, interrupts, launch, machine, management, park, report, xapic};

/// Handles an exit of Linux.
pub fn handle(local: &mut Local, exit: Exit) {
    const COMMAND_MSR: u32 = X2APIC_BASE + COMMAND;
    let rip = local.vcpu.rip();
    match exit {
        Exit::Nmi => {
            if !local.take_nmi() {
                local.nmi_wanted = true;
            }
        }
        Exit::MsrWrite(COMMAND_MSR, value) => {
            interrupts::root_command(local, Command::from_x2apic(value));
            local.vcpu.skip_exit(exit);
        }
        Exit::MsrWrite(msr, value) => match write_msr(local, msr, value) {
            MsrOutcome::Done => local.vcpu.skip_exit(exit),
            MsrOutcome::Fault => local.vcpu.inject(Event::GeneralProtection),
        },
        Exit::MsrRead(msr) if Vcpu::ROOT_MSRS.iter().any(|(known, _)| *known == msr) => {
            let value = local.vcpu.read_msr(msr);
            set_msr_value(local, value);
            local.vcpu.skip_exit(exit);
        }
        Exit::MsrRead(msr) => match machine_check(msr).and_then(host::read_machine_check) {
            Some(value) => {
                set_msr_value(local, value);
                local.vcpu.skip_exit(exit);
            }
            None => local.vcpu.inject(Event::GeneralProtection),
        },
        Exit::Hypercall => {
            local.vcpu.skip_exit(exit);
            if let Some(result) = hypercall::root(local) {
                local.vcpu.registers()[0] = result as u64;
            } else {
                launch::leave(local);
            }
        }
        Exit::NestedFault { address, write } => memory_fault(local, address, write),
        // Only ports that a cell has alone exit.
        Exit::Port(_) => local.vcpu.inject(Event::GeneralProtection),
        Exit::Invd if local.vcpu.privilege() != 0 => local.vcpu.inject(Event::GeneralProtection),
        Exit::Invd => {
            // To drop what other cells have in their caches is not Linux's to decide.
            // SAFETY: Writes caches back.
            unsafe { core::arch::asm!("wbinvd", options(nostack)) };
            local.vcpu.skip_exit(exit);
        }
        Exit::Hidden => local.vcpu.inject(Event::InvalidOpcode),
        Exit::Shutdown => shutdown(local),
        Exit::Cpuid | Exit::Xsetbv | Exit::Debug | Exit::AlignmentCheck | Exit::Other => {
            let (code, information) = local.vcpu.exit_words();
            panic!("root cell: exit {code:#x} information {information:#x} rip {rip:#x}");
        }
    }
}

/// Puts `value` into EDX:EAX.
pub fn set_msr_value(local: &mut Local, value: u64) {
    let registers = local.vcpu.registers();
    registers[0] = value & 0xffff_ffff;
    registers[2] = value >> 32;
}

fn write_msr(local: &mut Local, msr: u32, value: u64) -> MsrOutcome {
    if msr == MSR_APIC_BASE {
        // The mode and the place of the APIC stay as they were at launch.
        return match host::read_msr(msr) == value {
            true => MsrOutcome::Done,
            false => MsrOutcome::Fault,
        };
    }
    if Vcpu::ROOT_MSRS.iter().any(|(known, _)| *known == msr) {
        return local.vcpu.write_msr(msr, value);
    }
    match machine_check(msr) {
        Some(msr) if host::write_machine_check(msr, value) => MsrOutcome::Done,
        _ => MsrOutcome::Fault,
    }
}

/// `msr` if it is one of the scalable machine-check architecture (AMD APM vol. 2, 9.3.2). No bitmap covers these, so each
/// access exits; Linux polls them, and takes a fault there for the end.
fn machine_check(msr: u32) -> Option<u32> {
    (0xc000_2000..=0xc000_2fff).contains(&msr).then_some(msr)
}

fn memory_fault(local: &mut Local, address: u64, write: bool) {
    if machine::launch_info().x2apic == 0 && address & !0xfff == XAPIC_PAGE && write {
        if !xapic::write(local, address) {
            complain(local, "cannot decode a write to the local APIC", address);
            local.vcpu.inject(Event::GeneralProtection);
        }
        return;
    }
    if management::reach(local, address, write) {
        return;
    }
    complain(local, "touches memory that it does not have", address);
    guest::reflect_fault(local, address, write);
}

/// Logs what Linux did, at most once a second for each CPU.
fn complain(local: &mut Local, what: &str, address: u64) {
    let (now, second) = (host::tsc(), u64::from(machine::launch_info().tsc_khz) * 1000);
    if local.last_complaint == 0 || now.wrapping_sub(local.last_complaint) > second {
        local.last_complaint = now;
        let (cpu, rip) = (local.index, local.vcpu.rip());
        report::line(format_args!("cpu{cpu} root: {what}: address {address:#x} rip {rip:#x}"));
    }
}

/// A triple fault: Linux is dead on this CPU, or wants the machine to be reset. Cells, if there are any, go on.
fn shutdown(local: &mut Local) {
    let (cpu, rip) = (local.index, local.vcpu.rip());
    report::line(format_args!("cpu{cpu} root: triple fault, rip {rip:#x}"));
    if !machine::any_cell() {
        host::reset_machine();
    }
    park::enter(local);
    park::wait(local);
}
