// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reasons of exits, as they are counted and reported.

use crtos_abi::report::*;
use crtos_machine::arch::Exit;
use crtos_machine::launch_info;
use crtos_registers::apic::{PAGE, Register, X2APIC_FIRST, X2APIC_LAST};

/// The interrupt command register of x2APIC mode.
pub const COMMAND_MSR: u32 = Register::COMMAND.msr();

/// The reason under which an exit is counted.
#[inline]
pub fn of(exit: Exit) -> usize {
    match exit {
        Exit::Nmi | Exit::NmiReturn => EXIT_NMI,
        Exit::MsrWrite(COMMAND_MSR, _) => EXIT_ICR,
        Exit::MsrRead(X2APIC_FIRST..=X2APIC_LAST)
        | Exit::MsrWrite(X2APIC_FIRST..=X2APIC_LAST, _)
            if !launch_info::x2apic() =>
        {
            EXIT_APIC
        }
        Exit::MsrRead(_) | Exit::MsrWrite(..) => EXIT_MSR,
        Exit::Hypercall => EXIT_HYPERCALL,
        Exit::NestedFault { address, .. } if address.get() & !0xfff == PAGE => EXIT_APIC,
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

/// What a cell did that it may not do.
pub fn describe(exit: Exit) -> &'static str {
    match exit {
        Exit::NestedFault { write: true, .. } => "write to memory that is not the cell's",
        Exit::NestedFault { .. } => "read of memory that is not the cell's",
        Exit::Port(_) => "port that is not the cell's",
        Exit::MsrWrite(COMMAND_MSR, _) => "interrupt command that leaves the cell",
        Exit::MsrRead(_) => "read of a register that is not the cell's",
        Exit::MsrWrite(..) => "write to a register that is not the cell's",
        Exit::Xsetbv => "XSETBV of unknown features",
        Exit::Hidden | Exit::Invd => "instruction that cells do not have",
        Exit::Shutdown => "triple fault",
        _ => "unexpected exit",
    }
}
