// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floating-point and vector state when a CPU changes its owner: all of it takes its initial value,
//! so that nothing of the old owner is left. The hypervisor itself never uses it.

use core::arch::{asm, x86_64::__cpuid_count};

use crtos_registers::{cpuid, fpu};
use x86_64::registers::xcontrol::XCr0Flags;

use super::{has_xsave, msr};

/// The legacy area and header of XSAVE (APM vol. 2, 11.5.3).
#[repr(C, align(64))]
struct Image([u32; 144]);

/// Everything in its initial state.
static INITIAL: Image = {
    let mut image = [0; 144];
    image[0] = fpu::CONTROL_WORD as u32;
    image[6] = fpu::MXCSR;
    Image(image)
};

/// What a guest may set XCR0 to.
#[derive(Clone, Copy)]
pub struct Features(u64);

impl Features {
    /// `features`, if a program can set XCR0 to them (APM vol. 2, 11.5.2).
    pub fn from_guest(features: u64) -> Option<Self> {
        // Rules of other components are not known here.
        let known = XCr0Flags::X87 | XCr0Flags::SSE | XCr0Flags::AVX | AVX512 | XCr0Flags::MPK;
        let all = XCr0Flags::from_bits(features)?;
        let implies =
            |part: XCr0Flags, needed: XCr0Flags| !all.intersects(part) || all.contains(needed);
        let valid = all.contains(XCr0Flags::X87)
            && features & !(supported() & known.bits()) == 0
            && implies(XCr0Flags::AVX, XCr0Flags::SSE)
            && implies(AVX512, XCr0Flags::AVX | AVX512);
        valid.then_some(Self(features))
    }

    /// Loads them into XCR0.
    pub fn load(self) {
        // SAFETY: The guest has XSAVE on, so the host has as well; the processor supports this
        // combination.
        unsafe { write_xcr0(self.0) }
    }
}

const AVX512: XCr0Flags = XCr0Flags::OPMASK.union(XCr0Flags::ZMM_HI256).union(XCr0Flags::HI16_ZMM);

/// What the processor's XCR0 may hold.
fn supported() -> u64 {
    let leaf = __cpuid_count(cpuid::XSAVE, 0);
    u64::from(leaf.edx) << 32 | u64::from(leaf.eax)
}

/// Writes XCR0.
///
/// # Safety
/// CR4.OSXSAVE is on, and the processor supports this combination of features.
unsafe fn write_xcr0(features: u64) {
    // SAFETY: The instruction does not fault, says the caller, and the hypervisor does not use what
    // it switches.
    unsafe {
        asm!(
            "xsetbv",
            in("ecx") 0, in("eax") features as u32, in("edx") (features >> 32) as u32,
            options(nomem, nostack)
        );
    }
}

/// Resets the state of this CPU; XCR0 becomes 1.
pub(crate) fn reset() {
    if !has_xsave() {
        // SAFETY: Restores the initial image, aligned to 16; the host has OSFXSR on, as Linux had
        // it.
        unsafe { asm!("fxrstor [{}]", in(reg) &INITIAL, options(nostack)) }
        return;
    }
    // SAFETY: The host has OSXSAVE on where there is XSAVE. All that the processor supports is a
    // valid combination, and so is x87 alone. The image's header says that no component is in it,
    // so all take their initial state.
    unsafe {
        write_xcr0(supported());
        asm!(
            "xrstor [{}]",
            in(reg) &INITIAL, in("eax") u32::MAX, in("edx") u32::MAX,
            options(nostack)
        );
        write_xcr0(XCr0Flags::X87.bits());
    }
    msr::clear_supervisor_states();
}
