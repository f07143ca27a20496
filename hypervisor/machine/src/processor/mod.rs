// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPU that executes this: time, caches, segment registers, the end.

use core::arch::{asm, x86_64::__cpuid, x86_64::_rdtsc};

use crtos_partition::resets::Access;
use crtos_registers::cpuid;
use x86_64::instructions::port::{Port, PortWriteOnly};

use crate::launch_info;

pub mod fpu;
pub mod machine_check;
pub mod msr;

/// The time stamp counter.
#[inline]
pub fn tsc() -> u64 {
    // SAFETY: Every processor that gets here has it.
    unsafe { _rdtsc() }
}

/// The time stamp counter after `milliseconds`.
pub fn deadline(milliseconds: u64) -> u64 {
    tsc().wrapping_add(u64::from(launch_info::get().tsc_khz) * milliseconds)
}

/// CS, SS, DS, ES as loaded.
pub(crate) fn selectors() -> [u16; 4] {
    let [cs, ss, ds, es]: [u16; 4];
    // SAFETY: Reads registers only.
    unsafe {
        asm!(
            "mov {0:x}, cs", "mov {1:x}, ss", "mov {2:x}, ds", "mov {3:x}, es",
            out(reg) cs, out(reg) ss, out(reg) ds, out(reg) es, options(nomem, nostack)
        );
    }
    [cs, ss, ds, es]
}

/// Writes all caches of this CPU back to memory.
pub fn write_back_caches() {
    // SAFETY: No content of memory changes.
    unsafe { asm!("wbinvd", options(nostack)) };
}

/// Writes the line of the caches in which a byte lies back to memory.
pub(crate) fn write_back_line(byte: *const u8) {
    // SAFETY: No content of memory changes. A byte that is not mapped would fault, which nobody
    // passes.
    unsafe { core::arch::x86_64::_mm_clflush(byte) }
}

/// Stores two words by one store.
///
/// # Safety
/// `place` is valid for writes of 16 bytes, and aligned to them; nobody else writes there.
pub(crate) unsafe fn store_pair(place: *mut [u64; 2], [low, high]: [u64; 2]) {
    // SAFETY: The caller promises. RBX is put back: the compiler may not lend it.
    unsafe {
        asm!(
            "xchg {low}, rbx",
            "2:",
            "lock cmpxchg16b [{place}]",
            "jne 2b",
            "mov rbx, {low}",
            low = inout(reg) low => _,
            place = in(reg) place,
            in("rcx") high,
            inout("rax") 0u64 => _,
            inout("rdx") 0u64 => _,
            options(nostack)
        );
    }
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    loop {
        // SAFETY: The CPU executes nothing else any more; only a machine check wakes it.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}

/// Resets the machine as a triple fault would on a bare one.
pub fn reset_machine() -> ! {
    // SAFETY: The reset control register of the chipset, then the keyboard controller: nothing goes
    // on afterwards.
    unsafe {
        PortWriteOnly::<u8>::new(0xcf9).write(0x0e);
        PortWriteOnly::<u8>::new(0x64).write(0xfe);
    }
    halt()
}

/// Carries out an access of Linux to ports that it has; returns what was read.
pub fn access_ports_for_root(access: &Access) -> u32 {
    let (port, written) = (access.first, access.written);
    // SAFETY: Linux may do that by itself where the access does not exit.
    unsafe {
        match (access.width, written) {
            (1, Some(value)) => Port::<u8>::new(port).write(value as u8),
            (2, Some(value)) => Port::<u16>::new(port).write(value as u16),
            (_, Some(value)) => Port::<u32>::new(port).write(value),
            (1, None) => return Port::<u8>::new(port).read().into(),
            (2, None) => return Port::<u16>::new(port).read().into(),
            (_, None) => return Port::<u32>::new(port).read(),
        }
    }
    0
}

/// Tells whether the processor has XSAVE.
pub(crate) fn has_xsave() -> bool {
    __cpuid(cpuid::FEATURES).ecx & 1 << cpuid::ECX_XSAVE != 0
}

/// Tells whether the local APIC's timer can fire at a value of the time stamp counter.
pub(crate) fn has_tsc_deadline() -> bool {
    __cpuid(cpuid::FEATURES).ecx & 1 << cpuid::ECX_TSC_DEADLINE != 0
}

/// Tells whether the processor has a control of speculation: a bit of `AMD_EXTENDED`, EBX.
pub(crate) fn has_control(bit: u32) -> bool {
    __cpuid(cpuid::EXTENDED).eax >= cpuid::AMD_EXTENDED
        && __cpuid(cpuid::AMD_EXTENDED).ebx & 1 << bit != 0
}
