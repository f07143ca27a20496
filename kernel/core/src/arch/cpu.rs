// SPDX-License-Identifier: MIT OR Apache-2.0
//! Features and registers of a CPU.

use crate::sections;
use core::arch::{
    asm,
    x86_64::{__cpuid_count, _rdtsc},
};
use raw_cpuid::{CpuId, CpuIdReaderNative};
use spin::Once;
use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags};
use x86_64::registers::model_specific::Msr;
use x86_64::registers::rflags::RFlags;
use x86_64::registers::xcontrol::XCr0Flags;

/// What CPUID offers of what the kernel can use. All CPUs of a cell are alike.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// XSAVE and its mask of components that the kernel enables (XCR0), or 0.
    pub xcr0: u64,
    /// RDFSBASE and its kin.
    pub fsgsbase: bool,
    /// Supervisor-mode execution prevention.
    pub smep: bool,
    /// Supervisor-mode access prevention.
    pub smap: bool,
    /// User-mode instruction prevention.
    pub umip: bool,
    /// TSC-deadline mode of the local APIC's timer.
    pub tsc_deadline: bool,
}

static FEATURES: Once<Features> = Once::new();

/// The features of the CPUs.
pub fn features() -> &'static Features {
    FEATURES.call_once(detect)
}

fn cpuid() -> CpuId<CpuIdReaderNative> {
    CpuId::new()
}

fn detect() -> Features {
    let id = cpuid();
    let info = id.get_feature_info();
    let extended = id.get_extended_feature_info();
    let has = |f: fn(&raw_cpuid::FeatureInfo) -> bool| info.as_ref().is_some_and(f);
    let has_extended =
        |f: fn(&raw_cpuid::ExtendedFeatures) -> bool| extended.as_ref().is_some_and(f);
    let xsave = has(|i| i.has_xsave());
    // CPUID 0xd: the components that the processor (and the hypervisor) let us enable.
    let components = if xsave {
        let leaf = __cpuid_count(0xd, 0);
        u64::from(leaf.edx) << 32 | u64::from(leaf.eax)
    } else {
        0
    };
    Features {
        xcr0: usable_components(components),
        fsgsbase: has_extended(|e| e.has_fsgsbase()),
        smep: has_extended(|e| e.has_smep()),
        smap: has_extended(|e| e.has_smap()),
        umip: has_extended(|e| e.has_umip()),
        tsc_deadline: has(|i| i.has_tsc_deadline()),
    }
}

/// x87 and SSE, AVX, and AVX-512 if all three of its components are there.
const fn usable_components(offered: u64) -> u64 {
    const SSE: u64 = XCr0Flags::X87.union(XCr0Flags::SSE).bits();
    const AVX: u64 = XCr0Flags::AVX.bits();
    const AVX512: u64 =
        XCr0Flags::OPMASK.union(XCr0Flags::ZMM_HI256).union(XCr0Flags::HI16_ZMM).bits();
    if offered & SSE != SSE {
        return 0;
    }
    let mut mask = SSE;
    if offered & AVX != 0 {
        mask |= AVX;
        if offered & AVX512 == AVX512 {
            mask |= AVX512;
        }
    }
    mask
}

/// Sets the control registers of this CPU as the kernel needs them.
pub fn set_up() {
    let features = features();
    let mut cr4 = Cr4Flags::PHYSICAL_ADDRESS_EXTENSION
        | Cr4Flags::PAGE_GLOBAL
        | Cr4Flags::OSFXSR
        | Cr4Flags::OSXMMEXCPT_ENABLE;
    cr4.set(Cr4Flags::MACHINE_CHECK_EXCEPTION, super::machine_check::is_supported());
    cr4.set(Cr4Flags::OSXSAVE, features.xcr0 != 0);
    cr4.set(Cr4Flags::FSGSBASE, features.fsgsbase);
    cr4.set(Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION, features.smep);
    cr4.set(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION, features.smap);
    cr4.set(Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION, features.umip);
    super::user_memory::set_up(features.smap);
    // SAFETY: protection and paging stay as they are; the kernel maps no user page for itself,
    // so prevention of such accesses changes nothing for it.
    unsafe {
        Cr0::update(|cr0| {
            cr0.remove(Cr0Flags::EMULATE_COPROCESSOR | Cr0Flags::TASK_SWITCHED);
            cr0.insert(
                Cr0Flags::MONITOR_COPROCESSOR
                    | Cr0Flags::NUMERIC_ERROR
                    | Cr0Flags::WRITE_PROTECT
                    | Cr0Flags::ALIGNMENT_MASK,
            );
        });
        Cr4::write(cr4);
    }
    super::speculation::set_up();
}

/// FS base and GS base of the program that is in the registers. Interrupts off, in the kernel.
///
/// # Safety
/// The CPU has the instructions ([`Features::fsgsbase`]), which [`set_up`] has turned on.
#[inline(always)]
pub unsafe fn user_bases() -> (u64, u64) {
    let (fs, gs): (u64, u64);
    // SAFETY: the caller says that the CPU has the instructions; the kernel's GS is back before
    // anything uses it.
    unsafe {
        asm!(
            "rdfsbase {}",
            "swapgs",
            "rdgsbase {}",
            "swapgs",
            out(reg) fs,
            out(reg) gs,
            options(nomem, nostack, preserves_flags)
        );
    }
    (fs, gs)
}

/// Sets what [`user_bases`] tells.
///
/// # Safety
/// As there, and both are canonical.
#[inline(always)]
pub unsafe fn set_user_bases(fs: u64, gs: u64) {
    // SAFETY: the caller says that the CPU has the instructions; the kernel does not use FS, and
    // its GS is back before anything uses it.
    unsafe {
        asm!(
            "wrfsbase {}",
            "swapgs",
            "wrgsbase {}",
            "swapgs",
            in(reg) fs,
            in(reg) gs,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Reads a register.
///
/// # Safety
/// The register exists and the cell may read it.
pub unsafe fn read_msr(register: u32) -> u64 {
    // SAFETY: the caller says that the register exists and may be read.
    unsafe { Msr::new(register).read() }
}

/// Writes a register.
///
/// # Safety
/// The register exists, the cell may write it, and nothing that Rust relies on changes.
pub unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller says that the register exists, may be written, and what that means.
    unsafe { Msr::new(register).write(value) }
}

/// The time stamp counter, read after all earlier instructions completed.
pub fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has SSE2's LFENCE and RDTSC; the hypervisor does not intercept
    // them.
    unsafe {
        asm!("lfence", options(nostack, preserves_flags));
        _rdtsc()
    }
}

/// A number that programs cannot guess: the processor's generator made it or, where there is none
/// or it fails, it follows from the time stamp counter, whose low bits at boot nobody knows.
pub fn random() -> u64 {
    let generator = x86_64::instructions::random::RdRand::new();
    // An odd constant near 2^64 over the golden ratio spreads the low bits.
    let from_time = || tsc().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    generator.and_then(x86_64::instructions::random::RdRand::get_u64).unwrap_or_else(from_time)
}

/// Whether interrupts are on.
pub fn are_interrupts_on() -> bool {
    x86_64::instructions::interrupts::are_enabled()
}

/// Turns interrupts off and says whether they were on.
#[inline(always)]
pub fn disable_interrupts() -> bool {
    let flags: u64;
    // SAFETY: reads the flags by way of the stack, and turns interrupts off.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags, options(preserves_flags)) };
    let on = flags & RFlags::INTERRUPT_FLAG.bits() != 0;
    if on {
        sections::begin();
    }
    on
}

/// Turns interrupts off, which are on.
#[inline(always)]
pub fn turn_interrupts_off() {
    x86_64::instructions::interrupts::disable();
    sections::begin();
}

/// Turns interrupts on if `on`. They are off.
#[inline(always)]
pub fn restore_interrupts(on: bool) {
    if on {
        sections::end();
        x86_64::instructions::interrupts::enable();
    }
}

/// Waits for an interrupt. Interrupts are off at the call; none is lost between its look at the
/// work and the wait. They are on afterwards.
pub fn wait_for_interrupt() {
    sections::end();
    x86_64::instructions::interrupts::enable_and_hlt();
}

/// Stops this CPU for good.
pub fn halt() -> ! {
    loop {
        x86_64::instructions::interrupts::disable();
        x86_64::instructions::hlt();
    }
}
