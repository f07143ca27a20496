// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floating-point and vector state when a CPU changes its owner: all of it takes its initial value, so that
//! nothing of the old owner is left. The hypervisor itself never uses it.

use core::arch::{asm, x86_64::__cpuid_count};

use crate::host;

const MSR_XSS: u32 = 0xda0;
/// The legacy area and header of XSAVE.
#[repr(C, align(64))]
struct Image([u32; 144]);

/// Everything in its initial state; x87 control word 0x37f, MXCSR 0x1f80.
static INITIAL: Image = {
    let mut image = [0; 144];
    image[0] = 0x37f;
    image[6] = 0x1f80;
    Image(image)
};

/// What the processor's XCR0 may hold.
pub fn supported() -> u64 {
    let leaf = __cpuid_count(0xd, 0);
    u64::from(leaf.edx) << 32 | u64::from(leaf.eax)
}

/// Writes XCR0; the value is one that the processor supports.
pub fn set_features(features: u64) {
    // SAFETY: The host has OSXSAVE on; the value was checked against the processor's by the caller.
    unsafe {
        asm!(
            "xsetbv",
            in("ecx") 0, in("eax") features as u32, in("edx") (features >> 32) as u32,
            options(nomem, nostack)
        );
    }
}

/// Can a program set XCR0 to `features`? (AMD APM vol. 2, 11.5.2)
pub fn valid_features(features: u64) -> bool {
    const X87: u64 = 1;
    const SSE: u64 = 1 << 1;
    const AVX: u64 = 1 << 2;
    const AVX512: u64 = 7 << 5;
    const PKRU: u64 = 1 << 9;
    // Rules of other components are not known here.
    const KNOWN: u64 = X87 | SSE | AVX | AVX512 | PKRU;
    let implies = |part: u64, needed: u64| features & part == 0 || features & needed == needed;
    features & X87 != 0
        && features & !(supported() & KNOWN) == 0
        && implies(AVX, SSE)
        && implies(AVX512, AVX | AVX512)
}

/// Resets the state of this CPU; XCR0 becomes 1.
pub fn reset() {
    if !host::has_xsave() {
        // SAFETY: Restores the initial image, aligned to 16; the host has OSFXSR on, as Linux had it.
        unsafe { asm!("fxrstor [{}]", in(reg) &INITIAL, options(nostack)) }
        return;
    }
    set_features(supported());
    // SAFETY: The image's header says that no component is in it, so all take their initial state.
    unsafe {
        asm!(
            "xrstor [{}]",
            in(reg) &INITIAL, in("eax") u32::MAX, in("edx") u32::MAX,
            options(nostack)
        );
    }
    set_features(1);
    let supervisor_states = __cpuid_count(0xd, 1).eax & 1 << 3 != 0;
    if supervisor_states {
        host::write_msr(MSR_XSS, 0);
    }
}
