// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor's own memory: frames of the blocks that the module gave it at launch.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};

use crtos_abi::PAGE_SIZE;
use crtos_partition::address::PhysAddr;
use crtos_partition::frames::FramePool;
use crtos_partition::nested::PhysicalMemory;

use crate::direct_map::{self, AnyBits};
use crate::report;

/// Frames that hold a `T` and belong to whoever has this. They are given back by [`Frames::free`],
/// not by being dropped.
#[repr(transparent)]
pub(crate) struct Owned<T> {
    address: PhysAddr,
    content: PhantomData<T>,
}

impl<T> Owned<T> {
    /// Where it lies.
    pub(crate) fn address(&self) -> PhysAddr {
        self.address
    }
}

impl<T: AnyBits> Owned<T> {
    /// Fills it with zeroes.
    pub(crate) fn clear(&mut self) {
        // SAFETY: The frames hold a `T`, of which any bits are a value, and `&mut self` makes this
        // the only access.
        unsafe { direct_map::pointer::<T>(self.address).write_bytes(0, 1) }
    }
}

impl<T: AnyBits> Deref for Owned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: The frames were taken for this value alone, aligned and large enough, and any
        // bits are a `T`. The processor writes to them only while a guest runs on this CPU, when no
        // reference is in use.
        unsafe { &*direct_map::pointer(self.address) }
    }
}

impl<T: AnyBits> DerefMut for Owned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: The frames hold a `T` as for `deref`, and `&mut self` makes this the only
        // reference.
        unsafe { &mut *direct_map::pointer(self.address) }
    }
}

// SAFETY: A plain array of integers.
unsafe impl<const N: usize> AnyBits for [u8; N] {}

/// The hypervisor's frames.
pub(crate) struct Frames {
    pool: FramePool,
}

impl Frames {
    /// No memory yet.
    pub(crate) const fn new() -> Self {
        Self { pool: FramePool::new() }
    }

    /// Adds a block of 2 MiB whose first `head` and last `tail` frames are in use already.
    ///
    /// # Safety
    /// The rest of the block is the hypervisor's, and nothing else uses it.
    pub(crate) unsafe fn add_block(&mut self, address: PhysAddr, head: usize, tail: usize) {
        self.pool.add_block(address, head, tail);
    }

    /// Takes `count` contiguous frames full of zeroes, aligned to `align` frames.
    pub(crate) fn allocate(&mut self, count: usize, align: usize) -> Option<PhysAddr> {
        let address = self.pool.allocate(count, align)?;
        // SAFETY: The frames come from the pool, so the hypervisor has them and nobody uses them.
        unsafe { direct_map::clear(address, count as u64 * PAGE_SIZE) };
        report::free_pages(self.pool.free_frames());
        Some(address)
    }

    /// Takes frames for a `T`, which is at least aligned to a frame, full of zeroes.
    pub(crate) fn take<T: AnyBits>(&mut self) -> Option<Owned<T>> {
        const { assert!(align_of::<T>() as u64 <= PAGE_SIZE) };
        let address = self.allocate(size_of::<T>().div_ceil(PAGE_SIZE as usize), 1)?;
        Some(Owned { address, content: PhantomData })
    }

    /// Gives the frames of a value back.
    ///
    /// # Safety
    /// No processor uses the value any more.
    pub(crate) unsafe fn free<T>(&mut self, value: Owned<T>) {
        self.give_back(value.address, size_of::<T>().div_ceil(PAGE_SIZE as usize));
    }

    fn give_back(&mut self, address: PhysAddr, count: usize) {
        self.pool.free(address, count);
        report::free_pages(self.pool.free_frames());
    }

    /// The entry of a page table, which processors may be reading.
    ///
    /// # Panics
    /// If `address` is not in a table: a bug of the hypervisor, which must not touch anything else
    /// in this way.
    fn entry(&self, address: PhysAddr) -> &AtomicU64 {
        assert!(
            self.pool.is_table(address) && address.is_aligned(8),
            "not in a table: {address:#x}"
        );
        // SAFETY: The frame holds a table, which is only used in this way, and the entry is
        // aligned.
        unsafe { &*direct_map::pointer::<AtomicU64>(address) }
    }
}

impl PhysicalMemory for Frames {
    fn read(&self, address: PhysAddr) -> u64 {
        self.entry(address).load(Ordering::Relaxed)
    }

    fn write(&mut self, address: PhysAddr, value: u64) {
        self.entry(address).store(value, Ordering::Release);
    }

    fn allocate_table(&mut self) -> Option<PhysAddr> {
        let address = self.allocate(1, 1)?;
        self.pool.mark_table(address);
        Some(address)
    }

    fn free_table(&mut self, address: PhysAddr) {
        assert!(self.pool.is_table(address), "not a table: {address:#x}");
        self.give_back(address, 1);
    }
}
