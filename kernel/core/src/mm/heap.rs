// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's heap. It grows by blocks of 2 MiB of private memory, and gives those back that are
//! empty. Not for real-time paths.

use super::frames::PRIVATE;
use super::layout;
use crate::sync::SpinLock;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};
use crtos_vm::{BLOCK_SIZE, FrameSize};
use talc::base::Talc;
use talc::base::binning::{Binning, DefaultBinning};
use talc::source::Source;

struct Heap {
    talc: SpinLock<Talc<Blocks, DefaultBinning>>,
    size: AtomicU64,
    used: AtomicU64,
}

/// The blocks that the heap has of the pool.
#[derive(Debug)]
struct Blocks;

// SAFETY: the heap is not used here.
unsafe impl Source for Blocks {
    const TRACK_HEAP_END: bool = true;

    /// The heap grows in [`Heap::alloc`].
    fn acquire<B: Binning>(_: &mut Talc<Self, B>, _: Layout) -> Result<(), ()> {
        Err(())
    }

    unsafe fn resize(&mut self, first: *mut u8, end: *mut u8, is_empty: bool) -> *mut u8 {
        // The memory that the heap began with is never empty: its books lie there.
        if !is_empty {
            return end;
        }
        PRIVATE.free(layout::frame(end.wrapping_sub(BLOCK_SIZE as usize)), FrameSize::Large);
        HEAP.size.fetch_sub(BLOCK_SIZE, Ordering::Relaxed);
        first
    }
}

// SAFETY: memory comes from the allocator behind the lock, which never hands out the same twice.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut talc = self.talc.lock();
        loop {
            // SAFETY: callers of `alloc` give no layout of size 0.
            if let Some(memory) = unsafe { talc.allocate(layout) } {
                self.used.fetch_add(layout.size() as u64, Ordering::Relaxed);
                return memory.as_ptr();
            }
            // A fresh block serves no larger request than this, and one of this size for certain.
            const BOOKKEEPING: usize = 64 << 10;
            if layout.size() + layout.align() > BLOCK_SIZE as usize - BOOKKEEPING {
                return ptr::null_mut();
            }
            let Some(block) = PRIVATE.allocate(FrameSize::Large) else { return ptr::null_mut() };
            // SAFETY: the block was just taken from the pool and belongs to the heap from now on.
            unsafe { talc.claim(layout::direct(block), BLOCK_SIZE as usize) };
            self.size.fetch_add(BLOCK_SIZE, Ordering::Relaxed);
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: callers of `dealloc` say that the memory came from `alloc` with this layout.
        unsafe { self.talc.lock().deallocate(memory, layout) }
    }
}

#[global_allocator]
static HEAP: Heap = Heap {
    talc: SpinLock::new(Talc::new(Blocks)),
    size: AtomicU64::new(0),
    used: AtomicU64::new(0),
};

/// Gives the heap its first memory.
///
/// # Safety
/// `length` bytes at `start` belong to nobody else for ever.
pub unsafe fn set_up(start: NonNull<u8>, length: usize) {
    // SAFETY: the caller gives this memory to the heap for ever.
    unsafe { HEAP.talc.lock().claim(start.as_ptr(), length) };
    HEAP.size.fetch_add(length as u64, Ordering::Relaxed);
}

/// Bytes of the heap: all, and in use.
pub fn usage() -> (u64, u64) {
    (HEAP.size.load(Ordering::Relaxed), HEAP.used.load(Ordering::Relaxed))
}

/// Whether there is memory for what a program asks for. What a program can make the kernel allocate
/// starts with this question and fails with ENOMEM or EAGAIN, so that the reserve is left for what
/// must not fail.
pub fn has_reserve() -> bool {
    const RESERVE: u64 = 256 << 10;
    let (size, used) = usage();
    size.saturating_sub(used) > 2 * RESERVE || PRIVATE.usage().1 * crtos_vm::FRAME_SIZE > BLOCK_SIZE
}
