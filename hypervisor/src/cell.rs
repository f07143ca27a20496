// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exits of the cells beside Linux, and what happens to a cell that breaks its bounds: it stops, on
//! all its CPUs, and nothing else does.

use core::ops::Range;
use core::sync::atomic::Ordering;

use crtos_abi::device::{DEVICE_MEMORY, DEVICE_MEMORY_END};
use crtos_machine::arch::{Event, Exit, MsrOutcome, VirtualCpu};
use crtos_machine::local::{self, Local, Request};
use crtos_machine::processor::{self, fpu, machine_check};
use crtos_machine::report::{self, Failure};
use crtos_machine::{apic, cell, launch_info, park};
use crtos_partition::decode::{RAX, RCX, RDX};
use crtos_partition::grants;
use crtos_partition::ids::CellId;
use crtos_registers::apic::{PAGE, Register, x2apic_logical};
use crtos_registers::msr;
use x86_64::registers::model_specific::ApicBaseFlags;

use crate::{cpuid, hypercall, interrupts, management, reason};

/// Addresses at which devices of a cell may be.
const OF_DEVICES: Range<u64> = DEVICE_MEMORY..DEVICE_MEMORY_END;

/// APIC base register: enabled in x2APIC mode, what a cell sees whatever Linux uses.
const APIC_BASE_X2APIC: u64 =
    PAGE | ApicBaseFlags::LAPIC_ENABLE.bits() | ApicBaseFlags::X2APIC_ENABLE.bits();

/// Handles an exit of cell `id`.
#[inline]
pub fn handle(local: &mut Local, id: CellId, exit: Exit) {
    let is_program = local.vcpu().privilege() != 0;
    if let Some(fault) = fault(id, exit, is_program) {
        local.vcpu().inject(fault);
        return;
    }
    if let Some(exception) = exception(exit) {
        // A cell that does nothing but raise these hears of its end all the same.
        local.accept_nmi();
        local.vcpu().inject(exception);
        return;
    }
    let (allowed, address) = match exit {
        Exit::Nmi => return local.nmi_wanted |= !local.take_nmi(),
        Exit::NmiReturn => return,
        Exit::Hypercall => {
            // The guest makes the call again where it is too early: meanwhile it takes interrupts.
            let Some(result) = hypercall::cell(local, id) else { return };
            local.vcpu().registers()[RAX] = result as u64;
            (true, 0)
        }
        Exit::Cpuid => {
            cpuid::emulate(local);
            (true, 0)
        }
        Exit::Xsetbv => (set_features(local), local.vcpu().registers()[RCX]),
        Exit::MsrRead(number) => (read_msr(local, number), number.into()),
        Exit::MsrWrite(msr::EFER, value) => {
            if local.vcpu().write_msr(msr::EFER, value) == MsrOutcome::Fault {
                local.vcpu().inject(Event::GeneralProtection);
                return;
            }
            (true, 0)
        }
        Exit::MsrWrite(number, value) => (write_msr(local, id, number, value), number.into()),
        Exit::Port(port) => (false, port.into()),
        Exit::NestedFault { address, .. } => (false, address.get()),
        Exit::Invd
        | Exit::Hidden
        | Exit::Debug
        | Exit::AlignmentCheck
        | Exit::Shutdown
        | Exit::Other => (false, 0),
    };
    if allowed {
        local.vcpu().skip_exit(exit);
    } else {
        fail(local, id, exit, address);
    }
}

/// The fault that the guest gets instead of its end: what the processor raises where a program of
/// the cell, not its kernel, executes such an instruction, since some intercepts come before the
/// check of the privilege level; and where a device may have been, which Linux takes away at any
/// time, so that an access there is nothing that a cell can always avoid.
fn fault(id: CellId, exit: Exit, is_program: bool) -> Option<Event> {
    let is_fault = match exit {
        Exit::Hidden if is_program => return Some(Event::InvalidOpcode),
        Exit::Xsetbv | Exit::Invd => is_program,
        Exit::Port(_) => is_program || cell::get(id).has_had_device.load(Ordering::Relaxed),
        Exit::NestedFault { address, walk: false, .. } => OF_DEVICES.contains(&address.get()),
        _ => false,
    };
    is_fault.then_some(Event::GeneralProtection)
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
fn fail(local: &mut Local, id: CellId, exit: Exit, address: u64) {
    let (code, qualification) = local.vcpu().exit_words();
    let reason = reason::of(exit);
    let (cpu, rip) = (local.index(), local.vcpu().rip());
    let failure = Failure { cpu: Some(cpu), reason, rip, address, code, qualification };
    if cell::fail(id, &failure).is_ok() {
        let cell = cell::get(id);
        let name = cell.name();
        report::line(format_args!(
            "cpu{cpu} {name}: stopped: {} at {address:#x}, rip {rip:#x}, exit {code:#x} ({qualification:#x})",
            reason::describe(exit)
        ));
        cell.cpus()
            .filter(|other| *other != cpu)
            .for_each(|other| local::request(other, Request::Stop));
        management::reset_if_unlocked();
    }
    park::leave_cell(local);
}

/// Loads XCR0 with what the guest asks for; false if the processor does not support it.
fn set_features(local: &mut Local) -> bool {
    let registers = local.vcpu().registers();
    let wanted = registers[RAX] & 0xffff_ffff | registers[RDX] << 32;
    let register = registers[RCX] as u32;
    let features = fpu::Features::from_guest(wanted).filter(|_| register == 0);
    features.map(fpu::Features::load).is_some()
}

/// Reads a register for the guest; false if it may not.
fn read_msr(local: &mut Local, number: u32) -> bool {
    let value = match (number, Register::from_msr(number)) {
        (msr::EFER, _) => local.vcpu().efer(),
        (msr::APIC_BASE, _) => APIC_BASE_X2APIC,
        (_, Some(register)) => match read_apic(register) {
            Some(value) => value.into(),
            None => return false,
        },
        _ if machine_check::banks().is_some_and(|banks| banks.is_identity(number)) => {
            match processor::msr::read_for_guest(number) {
                Some(value) => value,
                None => return false,
            }
        }
        _ => return false,
    };
    local.vcpu().set_msr_value(value);
    true
}

/// Writes a register for the guest; false if it may not.
#[inline]
fn write_msr(local: &mut Local, id: CellId, number: u32, value: u64) -> bool {
    match (number, Register::from_msr(number)) {
        (msr::APIC_BASE, _) => value & !ApicBaseFlags::BSP.bits() == APIC_BASE_X2APIC,
        (_, Some(Register::COMMAND)) => interrupts::cell_command(local, id, value),
        (_, Some(register)) => write_apic(local, register, value as u32),
        _ => false,
    }
}

/// Reads a register of the x2APIC. Such reads all exit where Linux runs in xAPIC mode, and
/// otherwise none that is allowed.
fn read_apic(register: Register) -> Option<u32> {
    if launch_info::x2apic() || !grants::apic_readable(register) {
        return None;
    }
    let apic = apic::get();
    Some(match register {
        Register::ID => apic.id().0,
        Register::LOGICAL_DESTINATION => x2apic_logical(apic.id().0),
        _ => apic.read(register),
    })
}

/// Writes a register of the x2APIC, which exits as a read does, and always for local vectors; false
/// if the cell may not.
fn write_apic(local: &mut Local, register: Register, value: u32) -> bool {
    let apic = apic::get();
    if grants::local_vector(register, value) {
        return apic.write_local_vector(register, value);
    }
    if launch_info::x2apic() || !grants::apic_writable(register) {
        return false;
    }
    match register {
        Register::SELF_IPI => {
            apic.interrupt(launch_info::apic_id(local.index()), value as u8);
        }
        _ => apic.write(register, value),
    }
    true
}
