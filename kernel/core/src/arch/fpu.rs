// SPDX-License-Identifier: MIT OR Apache-2.0
//! Extended state (x87, SSE, AVX, AVX-512) of programs, in the standard format of XSAVE
//! (Intel SDM vol. 1, 13.4; APM vol. 1, 11.5).
//!
//! The kernel itself uses none of it. The registers keep the state of the program that ran last
//! while threads of the kernel run; they are exchanged when another program's thread comes.

use super::{cpu, user_memory, user_memory::StateFormat};
use crate::task;
use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, _fxrstor64, _fxsave64, _xsetbv};
use core::ptr::NonNull;
use crtos_abi::UserAddr;
use crtos_registers::fpu::{CONTROL_WORD as INITIAL_CONTROL, MXCSR as INITIAL_MXCSR};
use spin::Once;

/// Bytes of the part that FXSAVE knows.
/// Where the bytes of the legacy area begin that are software's own.
pub(super) const SOFTWARE: usize = 464;
const LEGACY_SIZE: usize = 512;
/// Bytes of the header that follows it.
const HEADER_SIZE: usize = 64;
const MXCSR: usize = 24;
const MXCSR_MASK: usize = 28;
/// MXCSR bits if the processor does not name them.
const DEFAULT_MXCSR_MASK: u32 = 0xffbf;

static SIZE: Once<usize> = Once::new();

/// Enables the extended state on this CPU.
pub fn set_up() {
    let xcr0 = features();
    if cpu::features().xcr0 != 0 {
        // SAFETY: XSAVE is on in CR4 and the components are offered by CPUID, with the ones they
        // depend on.
        unsafe { set_xcr0(xcr0) };
    }
    SIZE.call_once(|| match cpu::features().xcr0 {
        0 => LEGACY_SIZE,
        // EBX: bytes for the components enabled now.
        _ => __cpuid_count(0xd, 0).ebx as usize,
    });
}

/// # Safety
/// XSAVE is on in CR4 and `mask` a valid combination.
#[target_feature(enable = "xsave")]
unsafe fn set_xcr0(mask: u64) {
    // SAFETY: the caller says that XSAVE is on and the mask is valid.
    unsafe { _xsetbv(0, mask) }
}

/// Bytes of the extended state on this CPU (CPUID 0xd.0 EBX), or 512 without XSAVE.
pub fn size() -> usize {
    SIZE.get().copied().unwrap_or(LEGACY_SIZE)
}

/// The enabled components (XCR0), or 3 without XSAVE.
pub fn features() -> u64 {
    match cpu::features().xcr0 {
        0 => 3,
        mask => mask,
    }
}

/// The extended state of a thread that is not in the registers.
pub(crate) struct Area(NonNull<u8>);

// SAFETY: plain memory that the area owns.
unsafe impl Send for Area {}
// SAFETY: it is read and written only by the CPU that runs (or ran last) the owning thread, with
// interrupts off.
unsafe impl Sync for Area {}

impl Area {
    /// The initial state of a program; `None` without memory.
    pub fn new() -> Option<Self> {
        // SAFETY: the size is not 0.
        let area = Self(NonNull::new(unsafe { alloc_zeroed(Self::layout()) })?);
        area.reset();
        Some(area)
    }

    fn layout() -> Layout {
        // SAFETY: 64 is a power of two and the size is that of a few registers.
        unsafe { Layout::from_size_align_unchecked(size(), 64) }
    }

    /// Makes it the initial state: zero is that for all but the control words. Interrupts off.
    fn reset(&self) {
        // SAFETY: `size` bytes belong to the area, at least 512.
        unsafe {
            self.0.as_ptr().write_bytes(0, size());
            self.0.as_ptr().cast::<u16>().write(INITIAL_CONTROL);
            self.0.as_ptr().add(MXCSR).cast::<u32>().write(INITIAL_MXCSR);
        }
    }

    /// Stores the registers, of which `components` are enabled ([`cpu::Features::xcr0`]).
    /// Interrupts off.
    pub fn store_registers(&self, components: u64) {
        // SAFETY: the area is as large and aligned as the instructions want, for the enabled
        // components.
        unsafe {
            match components {
                0 => fxsave(self.0.as_ptr()),
                mask => xsave(self.0.as_ptr(), mask),
            }
        }
    }

    /// Loads the registers; see [`store_registers`](Self::store_registers). Interrupts off. The
    /// content is the processor's own or was checked by [`check`].
    pub fn load_registers(&self, components: u64) {
        // SAFETY: the area has the size and alignment that the components need, and valid content.
        unsafe {
            match components {
                0 => fxrstor(self.0.as_ptr()),
                mask => xrstor(self.0.as_ptr(), mask),
            }
        }
    }

    fn copy_out(&self, image: &mut [u8]) {
        let length = image.len().min(size());
        // SAFETY: both sides have that many bytes and do not overlap.
        unsafe { self.0.as_ptr().copy_to_nonoverlapping(image.as_mut_ptr(), length) }
    }

    fn copy_in(&self, image: &[u8]) {
        let length = image.len().min(size());
        // SAFETY: both sides have that many bytes and do not overlap.
        unsafe { self.0.as_ptr().copy_from_nonoverlapping(image.as_ptr(), length) }
    }

    fn mxcsr_mask(&self) -> u32 {
        // SAFETY: inside the legacy part.
        match unsafe { self.0.as_ptr().add(MXCSR_MASK).cast::<u32>().read() } {
            0 => DEFAULT_MXCSR_MASK,
            mask => mask,
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), Self::layout()) }
    }
}

/// # Safety
/// XSAVE is on; `area` is aligned to 64 and large enough.
#[inline(always)]
unsafe fn xsave(area: *mut u8, mask: u64) {
    // SAFETY: the caller says that XSAVE is on and the area large enough.
    unsafe {
        asm!(
            "xsave64 [{}]",
            in(reg) area,
            in("eax") mask as u32,
            in("edx") (mask >> 32) as u32,
            options(nostack, preserves_flags),
        )
    }
}

/// # Safety
/// As [`xsave`], and the content is valid.
#[inline(always)]
unsafe fn xrstor(area: *const u8, mask: u64) {
    // SAFETY: the caller says that the content is valid; the kernel has nothing in these registers.
    unsafe {
        asm!(
            "xrstor64 [{}]",
            in(reg) area,
            in("eax") mask as u32,
            in("edx") (mask >> 32) as u32,
            options(nostack, preserves_flags),
        )
    }
}

/// # Safety
/// `area` is aligned to 16 and has 512 bytes.
#[target_feature(enable = "fxsr")]
unsafe fn fxsave(area: *mut u8) {
    // SAFETY: the caller says that the area is aligned and has 512 bytes.
    unsafe { _fxsave64(area) }
}

/// # Safety
/// As [`fxsave`], and the content is valid.
#[target_feature(enable = "fxsr")]
unsafe fn fxrstor(area: *const u8) {
    // SAFETY: the caller says that the area is aligned, has 512 bytes, and valid content.
    unsafe { _fxrstor64(area) }
}

/// Copies the current thread's state to `image` ([`size`] bytes), for a signal frame.
pub fn save(image: &mut [u8]) {
    task::user::with_extended_state(|area| {
        area.store_registers(cpu::features().xcr0);
        area.copy_out(image);
    });
}

/// Loads the current thread's state from `image`, which is an allegation. `false` if it is not a
/// valid image for this CPU; the state is then unchanged.
pub fn restore(image: &[u8]) -> bool {
    if image.len() < size() {
        return false;
    }
    let mut valid = false;
    task::user::with_extended_state(|area| {
        area.store_registers(cpu::features().xcr0);
        valid = check(image, area.mxcsr_mask());
        if valid {
            area.copy_in(image);
            area.load_registers(cpu::features().xcr0);
        }
    });
    valid
}

/// What stands beside the state where [`push`] stores it.
static FORMAT: Once<StateFormat> = Once::new();

/// Bytes of an image of XSAVE from those that are software's own to the end of its header, in words
/// (APM vol. 2, 11.5.10).
pub const DESCRIPTION_WORDS: usize = (LEGACY_SIZE + HEADER_SIZE - SOFTWARE) / 8;

/// Has [`push`] store `description` in the bytes of each image that are software's own and in the
/// header behind these, and `closing` behind the image. At boot; nothing is stored before.
pub fn describe(description: [u64; DESCRIPTION_WORDS], closing: u32) {
    let mask = cpu::features().xcr0;
    if mask != 0 {
        FORMAT.call_once(|| StateFormat { description, closing: closing.into(), mask });
    }
}

/// Stores `words` at `to` and the current thread's state at `area`, both of its program, and gives
/// the thread the initial state; `false` if the memory is not present or there is no XSAVE.
/// Interrupts off.
pub fn push(to: UserAddr, words: &[u64], area: UserAddr) -> bool {
    let Some(format) = FORMAT.get() else { return false };
    let pushed = user_memory::push(to, words, area, size(), format);
    if pushed {
        load_initial(format.mask);
    }
    pushed
}

/// Loads the current thread's state from `address` of its program; `false` if the memory is not
/// present, what lies there is not valid, or there is no XSAVE. Then part of it may be loaded.
pub fn restore_from_user(address: UserAddr) -> bool {
    let mask = cpu::features().xcr0;
    let mut loaded = false;
    if mask != 0 {
        task::user::with_extended_state(|_| {
            loaded = user_memory::load_state(address, size(), mask)
        });
    }
    loaded
}

/// An image of XSAVE in which all components are in their initial state.
#[repr(C, align(64))]
struct Initial {
    control: u16,
    rest: [u16; MXCSR / 2 - 1],
    mxcsr: u32,
    more: [u8; LEGACY_SIZE + HEADER_SIZE - MXCSR - 4],
}

static INITIAL: Initial = Initial {
    control: INITIAL_CONTROL,
    rest: [0; MXCSR / 2 - 1],
    mxcsr: INITIAL_MXCSR,
    more: [0; LEGACY_SIZE + HEADER_SIZE - MXCSR - 4],
};

/// Gives the current thread the initial state that Linux gives a program (FCW 0x37f, MXCSR 0x1f80).
pub fn reset() {
    task::user::with_extended_state(|_| load_initial(cpu::features().xcr0));
}

/// Puts the initial state into the registers of the components `mask`, which a program's thread
/// has. Interrupts off.
fn load_initial(mask: u64) {
    let image = (&raw const INITIAL).cast();
    // SAFETY: the image is valid, and XRSTOR reads no more of it for components that are in their
    // initial state.
    unsafe {
        match mask {
            0 => fxrstor(image),
            mask => xrstor(image, mask),
        }
    }
}

/// Whether XRSTOR would accept `image` (Intel SDM vol. 1, 13.8.1). It has at least [`size`] bytes
/// and is not changed meanwhile.
fn check(image: &[u8], mxcsr_mask: u32) -> bool {
    let word = |at: usize| {
        image.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(u32::MAX, u32::from_le_bytes)
    };
    if word(MXCSR) & !mxcsr_mask != 0 {
        return false;
    }
    let xcr0 = cpu::features().xcr0;
    if xcr0 == 0 {
        return true;
    }
    let Some(header) = image.get(LEGACY_SIZE..LEGACY_SIZE + HEADER_SIZE) else { return false };
    let components = u64::from(word(LEGACY_SIZE + 4)) << 32 | u64::from(word(LEGACY_SIZE));
    components & !xcr0 == 0 && header[8..].iter().all(|&byte| byte == 0)
}

/// `si_code` for #MF from the x87 status and control words.
pub fn x87_exceptions() -> u32 {
    let (mut status, mut control) = (0u16, 0u16);
    // SAFETY: the instructions store two bytes each and wait for nothing.
    unsafe {
        asm!("fnstsw [{}]", in(reg) &raw mut status, options(nostack));
        asm!("fnstcw [{}]", in(reg) &raw mut control, options(nostack));
    }
    u32::from(status & !control)
}

/// The unmasked exceptions of #XM, from MXCSR.
pub fn simd_exceptions() -> u32 {
    let mut mxcsr = 0u32;
    // SAFETY: the instruction stores four bytes.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut mxcsr, options(nostack)) };
    mxcsr & !(mxcsr >> 7)
}
