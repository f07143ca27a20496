// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a guest was left, and what follows.

use crtos_abi::report::{
    EXIT_APIC, EXIT_CPUID, EXIT_EXCEPTION, EXIT_HIDDEN, EXIT_HYPERCALL, EXIT_ICR, EXIT_MSR,
    EXIT_NESTED_FAULT, EXIT_NMI, EXIT_OTHER, EXIT_PORT, EXIT_SHUTDOWN, EXIT_XSETBV,
};

use crate::apic::{COMMAND, X2APIC_BASE, X2APIC_LAST, XAPIC_PAGE};
use crate::arch::{Exit, VirtualCpu};
use crate::local::Local;
use crate::{cell, machine, root};

/// The reason under which an exit is counted.
pub fn reason(exit: Exit) -> usize {
    const COMMAND_MSR: u32 = X2APIC_BASE + COMMAND;
    match exit {
        Exit::Nmi => EXIT_NMI,
        Exit::MsrWrite(COMMAND_MSR, _) => EXIT_ICR,
        Exit::MsrRead(X2APIC_BASE..=X2APIC_LAST) | Exit::MsrWrite(X2APIC_BASE..=X2APIC_LAST, _)
            if machine::launch_info().x2apic == 0 =>
        {
            EXIT_APIC
        }
        Exit::MsrRead(_) | Exit::MsrWrite(..) => EXIT_MSR,
        Exit::Hypercall => EXIT_HYPERCALL,
        Exit::NestedFault { address, .. } if address & !0xfff == XAPIC_PAGE => EXIT_APIC,
        Exit::NestedFault { .. } => EXIT_NESTED_FAULT,
        Exit::Cpuid => EXIT_CPUID,
        Exit::Port(_) => EXIT_PORT,
        Exit::Xsetbv => EXIT_XSETBV,
        Exit::Hidden | Exit::Invd => EXIT_HIDDEN,
        Exit::Debug | Exit::AlignmentCheck => EXIT_EXCEPTION,
        Exit::Shutdown => EXIT_SHUTDOWN,
        Exit::Other => EXIT_OTHER,
    }
}

/// Called by the run loop after each exit.
///
/// # Safety
/// `local` is the memory of this CPU, and nobody else refers to it.
pub unsafe extern "sysv64" fn handle(local: *mut Local) {
    // SAFETY: As the caller says.
    let local = unsafe { &mut *local };
    let exit = local.vcpu.exit();
    local.count(reason(exit));
    match local.cell {
        None => root::handle(local, exit),
        Some(number) => cell::handle(local, number, exit),
    }
    local.serve();
    local.inject_nmi();
    local.vcpu.prepare_entry();
}

/// Called by the run loop before it enters the guest for the first time.
///
/// # Safety
/// As for [`handle`].
pub unsafe extern "sysv64" fn prepare_first_entry(local: *mut Local) {
    // SAFETY: As the caller says.
    unsafe { (*local).vcpu.prepare_entry() }
}
