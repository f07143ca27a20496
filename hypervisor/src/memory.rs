// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's memory, which the hypervisor sees at its own addresses, and the frames of it that are
//! the hypervisor's own.

use core::sync::atomic::{AtomicU64, Ordering};

use crtos_abi::PAGE_SIZE;
use crtos_partition::frames::FramePool;
use crtos_partition::nested::PhysicalMemory;

use crate::report;

/// End of the machine's memory that the host's page tables reach, 512 GiB.
pub const DIRECT_END: u64 = 1 << 39;

/// Where the host sees the byte at physical `address`, which is below [`DIRECT_END`].
pub fn pointer<T>(address: u64) -> *mut T {
    address as *mut T
}

/// Fills `size` bytes from `address` with zeroes. The caller has checked that they are not somebody else's.
pub fn clear(address: u64, size: u64) {
    // SAFETY: The direct map reaches the memory; whoever calls this owns it (a frame of the pool, or memory taken from
    // the root cell), so no Rust object lives there.
    unsafe { pointer::<u8>(address).write_bytes(0, size as usize) }
}

/// Copies `size` bytes between memory that no Rust object lives in.
pub fn copy(to: u64, from: u64, size: u64) {
    // SAFETY: As for `clear`; guests may change the source meanwhile, which then is copied in one state or the other.
    unsafe { pointer::<u8>(from).copy_to(pointer(to), size as usize) }
}

/// Reads a `T` that a guest put at `address`, once.
///
/// # Safety
/// Every bit pattern is a valid `T`.
pub unsafe fn read_once<T: Copy>(address: u64) -> T {
    // SAFETY: The direct map reaches the memory; the caller vouches for the type; alignment does not matter here.
    unsafe { core::ptr::read_volatile(pointer::<Unaligned<T>>(address)).0 }
}

#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Unaligned<T: Copy>(T);

/// The hypervisor's own frames.
pub struct Memory {
    pool: FramePool,
}

impl Memory {
    /// No memory yet.
    pub const fn new() -> Self {
        Self { pool: FramePool::new() }
    }

    /// See [`FramePool::add_block`].
    pub fn add_block(&mut self, address: u64, head: usize, tail: usize) {
        self.pool.add_block(address, head, tail);
    }

    /// Takes `count` contiguous frames full of zeroes, aligned to `align` frames.
    pub fn allocate(&mut self, count: usize, align: usize) -> Option<u64> {
        let address = self.pool.allocate(count, align)?;
        clear(address, count as u64 * PAGE_SIZE);
        report::free_pages(self.pool.free_frames());
        Some(address)
    }

    /// Gives `count` frames from `address` back.
    pub fn free(&mut self, address: u64, count: usize) {
        self.pool.free(address, count);
        report::free_pages(self.pool.free_frames());
    }
}

/// An entry of a page table, which other CPUs may be reading.
fn entry(address: u64) -> &'static AtomicU64 {
    // SAFETY: Tables lie in frames of the pool that are used as tables only, and are aligned.
    unsafe { &*pointer::<AtomicU64>(address) }
}

impl PhysicalMemory for Memory {
    fn read(&self, address: u64) -> u64 {
        entry(address).load(Ordering::Relaxed)
    }

    fn write(&mut self, address: u64, value: u64) {
        entry(address).store(value, Ordering::Release);
    }

    fn allocate_table(&mut self) -> Option<u64> {
        self.allocate(1, 1)
    }

    fn free_table(&mut self, address: u64) {
        self.free(address, 1);
    }
}
