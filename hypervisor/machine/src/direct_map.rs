// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's memory, which the hypervisor sees at its own addresses.

use core::sync::atomic::{AtomicU64, Ordering};

use crtos_partition::address::PhysAddr;

use crate::launch_info;

/// End of the memory that the host's page tables reach, 512 GiB.
pub(crate) const END: PhysAddr = PhysAddr::new(1 << 39);

/// The end of RAM, as far as the hypervisor can reach it.
pub fn memory_end() -> PhysAddr {
    PhysAddr::new(launch_info::get().memory_end).min(END)
}

/// Where the hypervisor sees the byte at `address`, which is below [`END`].
#[inline]
pub(crate) fn pointer<T>(address: PhysAddr) -> *mut T {
    address.get() as *mut T
}

/// Fills `size` bytes from `address` with zeroes.
///
/// # Safety
/// The bytes lie below [`END`], and no Rust object lives in them.
pub(crate) unsafe fn clear(address: PhysAddr, size: u64) {
    // SAFETY: The direct map reaches the bytes, which the caller may overwrite.
    unsafe { pointer::<u8>(address).write_bytes(0, size as usize) }
}

/// Copies `size` bytes. A guest may change the source meanwhile, which then is copied in one state
/// or the other.
///
/// # Safety
/// Both places lie below [`END`], and no Rust object lives in either.
pub(crate) unsafe fn copy(to: PhysAddr, from: PhysAddr, size: u64) {
    // SAFETY: The direct map reaches both places; the caller may read the one and overwrite the
    // other.
    unsafe { pointer::<u8>(from).copy_to(pointer(to), size as usize) }
}

/// A type of which every bit pattern is a value.
///
/// # Safety
/// That is so: plain integers and arrays of such, without padding that matters.
pub unsafe trait AnyBits {}

/// Reads a `T` that a guest put at `address`, once.
///
/// # Safety
/// It lies below [`END`], and no Rust object lives in it.
pub(crate) unsafe fn read_once<T: AnyBits + Copy>(address: PhysAddr) -> T {
    #[repr(C, packed)]
    #[derive(Clone, Copy)]
    struct Unaligned<T: Copy>(T);
    // SAFETY: The direct map reaches the place, which the caller may read; any bits are a `T`;
    // alignment does not matter.
    unsafe { core::ptr::read_volatile(pointer::<Unaligned<T>>(address)).0 }
}

/// Reads an entry of nested tables that are in use.
pub(crate) fn table_entry(address: PhysAddr) -> u64 {
    if address >= END || !launch_info::is_own(address) {
        return 0;
    }
    // SAFETY: The hypervisor's own memory, which the direct map reaches; entries of tables are
    // reached by atomics alone.
    unsafe { &*pointer::<AtomicU64>(address.align_down(8)) }.load(Ordering::Relaxed)
}

/// Reads the word of RAM at `address`, rounded down to a multiple of 8, whichever guest has it.
/// `None` if it is no RAM, or the hypervisor's own.
pub fn read_word(address: PhysAddr) -> Option<u64> {
    let address = address.align_down(8);
    if address >= memory_end() || launch_info::is_own(address) {
        return None;
    }
    // SAFETY: RAM, so the direct map reaches it, and reading has no effect. It is aligned, and none
    // of the hypervisor's blocks, so that no Rust object lives in it but the report's atomics.
    Some(unsafe { &*pointer::<AtomicU64>(address) }.load(Ordering::Relaxed))
}
