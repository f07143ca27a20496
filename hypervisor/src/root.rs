// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exits of Linux. It runs as on the bare machine, except for what would break the partition:
//! interrupt commands, the virtualization technology, memory and ports of cells.

use crtos_abi::PAGE_SIZE;
use crtos_machine::arch::{Event, Exit, MsrOutcome, VirtualCpu};
use crtos_machine::local::Local;
use crtos_machine::processor::{self, msr};
use crtos_machine::{cell, launch, launch_info, park, report};
use crtos_partition::address::{GuestAddr, PhysAddr};
use crtos_partition::decode::RAX;
use crtos_partition::icr::Command;
use crtos_partition::registers::{self, Read, Write};
use crtos_registers::apic;

use crate::hypercall::{self, Outcome};
use crate::reason::COMMAND_MSR;
use crate::{configuration, guest, interrupts, iommu, management, resets, sources, xapic};

/// Handles an exit of Linux.
#[inline]
pub fn handle(local: &mut Local, exit: Exit) {
    let rip = local.vcpu().rip();
    match exit {
        Exit::Nmi => local.nmi_wanted |= !local.take_nmi(),
        Exit::NmiReturn => (),
        Exit::MsrWrite(COMMAND_MSR, value) if launch_info::x2apic() => {
            interrupts::root_command(local, Command::from_x2apic(value));
            local.vcpu().skip_exit(exit);
        }
        Exit::MsrWrite(number, value) => match write_msr(local, number, value) {
            MsrOutcome::Done => local.vcpu().skip_exit(exit),
            MsrOutcome::Fault => local.vcpu().inject(Event::GeneralProtection),
        },
        Exit::MsrRead(number) => {
            let value = match registers::root_read(number) {
                Read::Zero => Some(0),
                // No bitmap covers the registers of machine checks, so each access exits; Linux
                // polls them, and takes a fault there for the end.
                Read::Free => msr::read_for_guest(number),
                Read::Refused => None,
            };
            match value {
                Some(value) => {
                    local.vcpu().set_msr_value(value);
                    local.vcpu().skip_exit(exit);
                }
                None => local.vcpu().inject(Event::GeneralProtection),
            }
        }
        Exit::Hypercall => {
            local.vcpu().skip_exit(exit);
            match hypercall::root(local) {
                Outcome::Result(result) => local.vcpu().registers()[RAX] = result as u64,
                Outcome::Leave(released) => launch::leave(local, released),
            }
        }
        Exit::NestedFault { address, walk: true, .. } if iommu::walk_table(local, address) => (),
        Exit::NestedFault { address, write, .. } => memory_fault(local, address, write),
        Exit::Port(_) => resets::access_ports(local, exit),
        Exit::Invd if local.vcpu().privilege() != 0 => {
            local.vcpu().inject(Event::GeneralProtection)
        }
        Exit::Invd => {
            // To drop what other cells have in their caches is not Linux's to decide.
            processor::write_back_caches();
            local.vcpu().skip_exit(exit);
        }
        Exit::Hidden => local.vcpu().inject(Event::InvalidOpcode),
        Exit::Shutdown => shutdown(local),
        Exit::Cpuid | Exit::Xsetbv | Exit::Debug | Exit::AlignmentCheck | Exit::Other => {
            let (code, information) = local.vcpu().exit_words();
            panic!("root cell: exit {code:#x} information {information:#x} rip {rip:#x}");
        }
    }
}

/// Carries out a write of Linux to a register, as far as Linux may change it.
fn write_msr(local: &mut Local, number: u32, value: u64) -> MsrOutcome {
    let done = match registers::root_write(number) {
        Write::Guest => return local.vcpu().write_msr(number, value),
        Write::Free | Write::Bits(_) => msr::write_for_root(number, value),
        // Some cannot be read.
        Write::Swallowed(u64::MAX) => true,
        Write::Swallowed(bits) => {
            msr::read_for_guest(number).is_some_and(|old| (old ^ value) & !bits == 0)
        }
        // Of x2APIC mode, in xAPIC mode.
        Write::Command => false,
    };
    if done { MsrOutcome::Done } else { MsrOutcome::Fault }
}

fn memory_fault(local: &mut Local, address: GuestAddr, write: bool) {
    if launch_info::is_special(PhysAddr::of_root(address.align_down(PAGE_SIZE)))
        && let Some((understood, complaint)) = special_access(local, address, write)
    {
        if !understood {
            complain_at(local, complaint, address);
            local.vcpu().inject(Event::GeneralProtection);
        }
        return;
    }
    let is_done = write && iommu::write_table(local, address);
    if !is_done && !management::reach(local, address, write) {
        complain_at(local, "touches memory that it does not have", address);
        guest::reflect_fault(local, address, write);
    }
}

/// Carries out an access to a page at which Linux's accesses exit so that they are carried out;
/// `None` if it is none. Tells whether the instruction is understood, and what to say if not.
fn special_access(
    local: &mut Local,
    address: GuestAddr,
    write: bool,
) -> Option<(bool, &'static str)> {
    let page = address.align_down(PAGE_SIZE).get();
    Some(if !launch_info::x2apic() && page == apic::PAGE && write {
        (xapic::write(local, address), "cannot decode a write to the local APIC")
    } else if write && configuration::is_kept(local, page) {
        (configuration::write(local, address), "cannot decode a write to configuration space")
    } else if write && launch_info::read_only_devices().any(|device| device.get() == page) {
        (sources::write(local, address), "cannot decode a write to an I/O APIC or timer")
    } else if crtos_machine::iommu::is_one(address) {
        (iommu::access(local, address, write), "cannot decode an access to an IOMMU")
    } else {
        return None;
    })
}

fn complain_at(local: &mut Local, what: &str, address: GuestAddr) {
    let rip = local.vcpu().rip();
    guest::complain(local, format_args!("{what}: address {address:#x} rip {rip:#x}"));
}

/// A triple fault: Linux is dead on this CPU, or wants the machine to be reset. Cells, if there are
/// any, go on.
fn shutdown(local: &mut Local) {
    let (cpu, rip) = (local.index(), local.vcpu().rip());
    report::line(format_args!("cpu{cpu} root: triple fault, rip {rip:#x}"));
    if cell::any_locked() {
        resets::halt_linux(local);
    } else if cell::any() {
        park::leave_root(local);
    } else {
        processor::reset_machine();
    }
}
