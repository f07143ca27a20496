// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exits of the cells beside Linux, and what happens to a cell that breaks its bounds: it stops, on all its CPUs, and nothing
//! else does.

use core::arch::x86_64::__cpuid_count;

use crtos_abi::ABI_VERSION;
use crtos_partition::icr::x2apic_logical;
use crtos_partition::lifecycle;

use crate::apic::{
    self, COMMAND, ERROR, ID, LOGICAL_DESTINATION, LVT_ERROR, LVT_TIMER, MSR_APIC_BASE, SELF_IPI,
    SPURIOUS, TASK_PRIORITY, TIMER_DIVIDE, TIMER_INITIAL, X2APIC_BASE, X2APIC_LAST,
};
use crate::arch::{Event, Exit, MsrOutcome, VirtualCpu};
use crate::local::{self, Local};
use crate::machine::{self, Failure};
use crate::{exits, fpu, host, hypercall, interrupts, park, report, root};

const MSR_EFER: u32 = 0xc000_0080;
/// APIC base register: enabled in x2APIC mode, what a cell sees whatever Linux uses.
const APIC_BASE_X2APIC: u64 = apic::XAPIC_PAGE | 1 << 11 | 1 << 10;

/// Handles an exit of cell `number`.
pub fn handle(local: &mut Local, number: usize, exit: Exit) {
    if local.vcpu.privilege() != 0
        && let Some(fault) = fault_of_program(exit)
    {
        local.vcpu.inject(fault);
        return;
    }
    if let Some(exception) = exception(exit) {
        // A cell that does nothing but raise these hears of its end all the same.
        local.accept_nmi();
        local.vcpu.inject(exception);
        return;
    }
    let (allowed, address) = match exit {
        Exit::Nmi => {
            if !local.take_nmi() {
                local.nmi_wanted = true;
            }
            return;
        }
        Exit::Hypercall => {
            local.vcpu.registers()[0] = hypercall::cell(local, number) as u64;
            (true, 0)
        }
        Exit::Cpuid => {
            cpuid(local);
            (true, 0)
        }
        Exit::Xsetbv => (set_features(local), local.vcpu.registers()[1]),
        Exit::MsrRead(msr) => (read_msr(local, msr), msr.into()),
        Exit::MsrWrite(MSR_EFER, value) => {
            if local.vcpu.write_msr(MSR_EFER, value) == MsrOutcome::Fault {
                local.vcpu.inject(Event::GeneralProtection);
                return;
            }
            (true, 0)
        }
        Exit::MsrWrite(msr, value) => (write_msr(local, number, msr, value), msr.into()),
        Exit::Port(port) => (false, port.into()),
        Exit::NestedFault { address, .. } => (false, address),
        Exit::Invd
        | Exit::Hidden
        | Exit::Debug
        | Exit::AlignmentCheck
        | Exit::Shutdown
        | Exit::Other => (false, 0),
    };
    if allowed {
        local.vcpu.skip_exit(exit);
    } else {
        fail(local, number, exit, address);
    }
}

/// What the processor raises where a program of the cell, not its kernel, executes such an instruction;
/// some intercepts come before the check of the privilege level.
fn fault_of_program(exit: Exit) -> Option<Event> {
    match exit {
        Exit::Xsetbv | Exit::Invd => Some(Event::GeneralProtection),
        Exit::Hidden => Some(Event::InvalidOpcode),
        _ => None,
    }
}

/// The exception that the guest was left for, which it gets as without the intercept.
fn exception(exit: Exit) -> Option<Event> {
    match exit {
        Exit::Debug => Some(Event::Debug),
        Exit::AlignmentCheck => Some(Event::AlignmentCheck),
        _ => None,
    }
}

/// Stops the cell: this CPU at once, the others by a kick.
fn fail(local: &mut Local, number: usize, exit: Exit, address: u64) {
    let (code, qualification) = local.vcpu.exit_words();
    let reason = exits::reason(exit);
    let (cpu, rip) = (local.index, local.vcpu.rip());
    let failure = Failure { cpu, reason, rip, address, code, qualification };
    let first = machine::advance(number, lifecycle::Event::Fail, || {
        report::cell_failed(number, &failure);
    });
    if let (Ok(_), Some(cell)) = (first, machine::cell(number)) {
        let name = cell.name();
        report::line(format_args!(
            "cpu{cpu} {name}: stopped: {} at {address:#x}, rip {rip:#x}, exit {code:#x} ({qualification:#x})",
            describe(exit)
        ));
        cell.cpus()
            .filter(|other| *other != cpu)
            .for_each(|other| local::request(other, local::STOP));
    }
    park::leave_cell(local);
    park::wait(local);
}

fn describe(exit: Exit) -> &'static str {
    const COMMAND_MSR: u32 = X2APIC_BASE + COMMAND;
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

/// XCR0, to what the processor supports.
fn set_features(local: &mut Local) -> bool {
    let registers = local.vcpu.registers();
    let features = registers[0] & 0xffff_ffff | registers[2] << 32;
    let valid = registers[1] as u32 == 0 && fpu::valid_features(features);
    if valid {
        fpu::set_features(features);
    }
    valid
}

fn read_msr(local: &mut Local, msr: u32) -> bool {
    let value = match msr {
        MSR_EFER => local.vcpu.read_msr(msr),
        MSR_APIC_BASE => APIC_BASE_X2APIC,
        X2APIC_BASE..=X2APIC_LAST => match read_apic(msr - X2APIC_BASE) {
            Some(value) => value.into(),
            None => return false,
        },
        _ => return false,
    };
    root::set_msr_value(local, value);
    true
}

fn write_msr(local: &mut Local, number: usize, msr: u32, value: u64) -> bool {
    match msr {
        MSR_APIC_BASE => value & !(1 << 8) == APIC_BASE_X2APIC,
        X2APIC_BASE..=X2APIC_LAST => write_apic(local, number, msr - X2APIC_BASE, value),
        _ => false,
    }
}

/// Registers of x2APIC mode that cells may read, as ranges.
pub const APIC_READABLE: &[(u32, u32)] = &[
    (0x02, 0x03),
    (0x08, 0x08),
    (0x0a, 0x0a),
    (0x0d, 0x0d),
    (0x0f, 0x28),
    (0x30, 0x30),
    (0x32, 0x39),
    (0x3e, 0x3e),
];
/// Registers of x2APIC mode that cells may write without further ado.
pub const APIC_WRITABLE: &[(u32, u32)] = &[
    (TASK_PRIORITY, TASK_PRIORITY),
    (apic::EOI, apic::EOI),
    (SPURIOUS, SPURIOUS),
    (ERROR, ERROR),
    (LVT_TIMER, LVT_ERROR),
    (TIMER_INITIAL, TIMER_INITIAL),
    (TIMER_DIVIDE, TIMER_DIVIDE),
    (SELF_IPI, SELF_IPI),
];

fn listed(list: &[(u32, u32)], number: u32) -> bool {
    list.iter().any(|(first, last)| (*first..=*last).contains(&number))
}

/// A read of the x2APIC that exits: all of them where Linux runs in xAPIC mode, none that is allowed otherwise.
fn read_apic(number: u32) -> Option<u32> {
    if machine::launch_info().x2apic != 0 || !listed(APIC_READABLE, number) {
        return None;
    }
    let apic = apic::get();
    Some(match number {
        ID => apic.id(),
        LOGICAL_DESTINATION => x2apic_logical(apic.id()),
        _ => apic.read(number),
    })
}

/// As [`read_apic`], and commands.
fn write_apic(local: &mut Local, number: usize, register: u32, value: u64) -> bool {
    if register == COMMAND {
        return interrupts::cell_command(local, number, value);
    }
    if machine::launch_info().x2apic != 0 || !listed(APIC_WRITABLE, register) {
        return false;
    }
    match register {
        SELF_IPI => interrupts::interrupt(machine::apic_id(local.index), value as u8),
        _ => apic::get().write(register, value as u32),
    }
    true
}

const CPUID_HYPERVISOR: u32 = 0x4000_0000;
/// "crtos cell\0\0" in EBX, ECX, EDX.
const SIGNATURE: [u32; 3] =
    [u32::from_le_bytes(*b"crto"), u32::from_le_bytes(*b"s ce"), u32::from_le_bytes(*b"ll\0\0")];

/// CPUID as cells see it: the processor's, without what they do not have.
fn cpuid(local: &mut Local) {
    const CR4_OSXSAVE: u64 = 1 << 18;
    const CR4_PKE: u64 = 1 << 22;
    let cr4 = local.vcpu.paging().cr4;
    let registers = local.vcpu.registers();
    let (leaf, subleaf) = (registers[0] as u32, registers[1] as u32);
    let real = __cpuid_count(leaf, subleaf);
    let (mut eax, mut ebx, mut ecx, mut edx) = (real.eax, real.ebx, real.ecx, real.edx);
    let set = |word: &mut u32, bit: u32, value: bool| {
        *word = *word & !(1 << bit) | u32::from(value) << bit;
    };
    match leaf {
        1 => {
            // No MONITOR, VMX, SMX; x2APIC, hypervisor. What mirrors CR4 mirrors the cell's.
            ecx &= !(1 << 3 | 1 << 5 | 1 << 6);
            ecx |= 1 << 21 | 1 << 31;
            set(&mut ecx, 27, cr4 & CR4_OSXSAVE != 0);
        }
        7 if subleaf == 0 => set(&mut ecx, 4, cr4 & CR4_PKE != 0),
        // MONITOR; SVM; memory encryption.
        5 | 0x8000_000a | 0x8000_001f => (eax, ebx, ecx, edx) = (0, 0, 0, 0),
        0x8000_0001 => {
            // No SVM, SKINIT, MONITORX.
            ecx &= !(1 << 2 | 1 << 12 | 1 << 29);
        }
        CPUID_HYPERVISOR => {
            eax = CPUID_HYPERVISOR + 1;
            [ebx, ecx, edx] = SIGNATURE;
        }
        0x4000_0001 => (eax, ebx, ecx, edx) = (ABI_VERSION, 0, 0, 0),
        0x4000_0002..=0x4fff_ffff => (eax, ebx, ecx, edx) = (0, 0, 0, 0),
        _ => (),
    }
    registers[0] = eax.into();
    registers[3] = ebx.into();
    registers[1] = ecx.into();
    registers[2] = edx.into();
}

/// Appends a byte to the line that the cell writes to the log.
pub fn put_byte(local: &mut Local, cell: &machine::Cell, byte: u8) {
    if byte != b'\n' {
        local.console.push(byte);
        return;
    }
    let text = core::str::from_utf8(local.console.as_bytes()).unwrap_or("(not UTF-8)");
    report::line(format_args!("cpu{} {}: {text}", local.index, cell.name()));
    local.console.clear();
}

/// The time stamp counter after `milliseconds`.
pub fn deadline(milliseconds: u64) -> u64 {
    host::tsc().wrapping_add(u64::from(machine::launch_info().tsc_khz) * milliseconds)
}
