// SPDX-License-Identifier: MIT OR Apache-2.0
//! Model-specific registers that the hypervisor uses, each with a function of its own. A register
//! whose value the hypervisor's own state depends on has an `unsafe` one. Those of a technology of
//! virtualization are in [`crate::arch`].

use core::arch::{global_asm, x86_64::__cpuid_count};

use crtos_partition::registers::{self, Write};
use crtos_registers::apic::Register;
use crtos_registers::{cpuid, msr};
use x86_64::registers::model_specific::Msr;

/// Reads register `number`.
///
/// # Safety
/// The register exists, and reading it has no effect.
#[inline]
pub(crate) unsafe fn read(number: u32) -> u64 {
    // SAFETY: The caller's duty is the same.
    unsafe { Msr::new(number).read() }
}

/// Writes register `number`.
///
/// # Safety
/// The register exists and takes the value, and nothing that Rust relies on changes.
#[inline]
pub(crate) unsafe fn write(number: u32, value: u64) {
    // SAFETY: The caller's duty is the same.
    unsafe { Msr::new(number).write(value) }
}

/// Base address and mode of the local APIC.
pub fn apic_base() -> u64 {
    // SAFETY: Every processor of 64 bits has it.
    unsafe { read(msr::APIC_BASE) }
}

/// Reads a register of the local APIC, in x2APIC mode. One that does not exist or cannot be read
/// ends in the hypervisor's handler of exceptions.
#[inline]
pub(crate) fn x2apic(register: Register) -> u64 {
    // SAFETY: No register of the local APIC changes by being read.
    unsafe { read(register.msr()) }
}

/// Writes a register of the local APIC, in x2APIC mode.
///
/// # Safety
/// No CPU is made to leave the hypervisor by it: an interrupt command is no INIT, start-up or
/// system-management interrupt.
#[inline]
pub(crate) unsafe fn set_x2apic(register: Register, value: u64) {
    // SAFETY: Only interrupts follow from it, and the caller rules out those that the hypervisor
    // does not survive.
    unsafe { write(register.msr(), value) }
}

/// Writes a local vector of the local APIC, in x2APIC mode; false if there is none of this number,
/// or if it does not take the value.
pub(crate) fn try_set_local_vector(register: Register, value: u32) -> bool {
    let vectors = Register::LVT_TIMER..=Register::LVT_ERROR;
    // SAFETY: Called between exits, so in host mode; interrupts of this CPU are all that a local
    // vector leads to.
    vectors.contains(&register) && unsafe { wrmsr_or_fault(register.msr(), value.into()) }
}

/// Extended features.
pub(crate) fn efer() -> u64 {
    // SAFETY: Every processor of 64 bits has it.
    unsafe { read(msr::EFER) }
}

/// Sets extended features.
///
/// # Safety
/// The processor has them, and those that the running code depends on stay on.
pub(crate) unsafe fn set_efer(value: u64) {
    // SAFETY: The caller vouches for the value.
    unsafe { write(msr::EFER, value) }
}

/// Memory types of the page attribute table.
pub(crate) fn pat() -> u64 {
    // SAFETY: Every processor of 64 bits has it.
    unsafe { read(msr::PAT) }
}

/// Sets memory types of the page attribute table.
///
/// # Safety
/// The memory types exist, and the hypervisor's own memory keeps its own.
pub(crate) unsafe fn set_pat(value: u64) {
    // SAFETY: The caller vouches for the value.
    unsafe { write(msr::PAT, value) }
}

/// Control-flow enforcement of the supervisor.
///
/// # Safety
/// The processor has it.
pub(crate) unsafe fn s_cet() -> u64 {
    // SAFETY: The caller knows that it exists.
    unsafe { read(msr::S_CET) }
}

/// Sets control-flow enforcement of the supervisor.
///
/// # Safety
/// The processor has it, and CR4.CET is off as long as the hypervisor runs.
pub(crate) unsafe fn set_s_cet(value: u64) {
    // SAFETY: The caller knows that it exists and has no effect yet.
    unsafe { write(msr::S_CET, value) }
}

/// Base of FS, the guest's: the hypervisor does not use it.
pub(crate) fn fs_base() -> u64 {
    // SAFETY: Every processor of 64 bits has it.
    unsafe { read(msr::FS_BASE) }
}

/// Base of GS, the guest's: the hypervisor does not use it.
pub(crate) fn gs_base() -> u64 {
    // SAFETY: Every processor of 64 bits has it.
    unsafe { read(msr::GS_BASE) }
}

/// Turns supervisor states of XSAVES off, where there are any. The processor has XSAVE.
pub(crate) fn clear_supervisor_states() {
    let supervisor_states = __cpuid_count(cpuid::XSAVE, 1).eax & 1 << cpuid::EAX_XSAVES != 0;
    if supervisor_states {
        // SAFETY: The register exists with XSAVES, which the hypervisor does not use.
        unsafe { write(msr::XSS, 0) };
    }
}

/// Reads register `number` for a guest; `None` if the processor has none of this number.
pub fn read_for_guest(number: u32) -> Option<u64> {
    let mut value = 0;
    // SAFETY: Called between exits, so in host mode; no register changes by being read.
    unsafe { rdmsr_or_fault(number, &mut value) }.then_some(value)
}

/// Writes `value` to register `number` for Linux, as far as [`registers`] lets Linux change it.
/// False if other bits would change, or if the processor does not take it.
pub fn write_for_root(number: u32, value: u64) -> bool {
    // A free register is one of machine checks: writes to the others do not exit.
    let bits = match registers::root_write(number) {
        Write::Free if msr::MACHINE_CHECK.contains(&number) => {
            // SAFETY: Called between exits, so in host mode; the registers of this range control
            // and report errors, nothing else.
            return unsafe { wrmsr_or_fault(number, value) };
        }
        Write::Bits(bits) => bits,
        _ => return false,
    };
    let Some(changed) = read_for_guest(number).map(|old| old ^ value) else { return false };
    // SAFETY: Called between exits, so in host mode; the hypervisor depends on none of the bits.
    changed == 0 || changed & !bits == 0 && unsafe { wrmsr_or_fault(number, value) }
}

/// Writes a register by which the CPU is asked for performance. A value that the processor does not
/// take has no effect.
pub(crate) fn set_performance(number: u32, value: u64) {
    if matches!(number, msr::PSTATE_CONTROL | msr::CPPC_REQUEST) {
        // SAFETY: Called between exits, so in host mode; the speed of this CPU changes, nothing
        // else.
        unsafe { wrmsr_or_fault(number, value) };
    }
}

/// Gives the registers that an owner of this CPU could write the values of [`registers::RESETS`].
///
/// # Safety
/// In host mode, with the host's descriptor tables and stack.
pub(crate) unsafe fn reset() {
    for (numbers, value) in registers::RESETS {
        for number in numbers.clone() {
            // SAFETY: In host mode, says the caller; the hypervisor depends on none of the
            // registers. One that the processor lacks faults, and is passed over.
            unsafe { wrmsr_or_fault(number, *value) };
        }
    }
}

unsafe extern "sysv64" {
    /// Reads a register into `value`; false if that faults.
    ///
    /// # Safety
    /// In host mode with the host's descriptor tables; reading the register has no effect on the
    /// hypervisor.
    fn rdmsr_or_fault(msr: u32, value: &mut u64) -> bool;
    /// Writes a register; false if that faults.
    ///
    /// # Safety
    /// In host mode with the host's descriptor tables; writing the register has no effect on the
    /// hypervisor.
    fn wrmsr_or_fault(msr: u32, value: u64) -> bool;
}

// `crate::exceptions` goes on at `msr_faulted` when one of the two instructions faults.
global_asm!(
    "rdmsr_or_fault:",
    "mov ecx, edi",
    "rdmsr_may_fault:",
    "rdmsr",
    "mov [rsi], eax",
    "mov [rsi + 4], edx",
    "mov eax, 1",
    "ret",
    "wrmsr_or_fault:",
    "mov ecx, edi",
    "mov eax, esi",
    "mov rdx, rsi",
    "shr rdx, 32",
    "wrmsr_may_fault:",
    "wrmsr",
    "mov eax, 1",
    "ret",
    "msr_faulted:",
    "xor eax, eax",
    "ret",
);
