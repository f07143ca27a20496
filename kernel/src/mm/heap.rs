// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's heap.

use core::alloc::{GlobalAlloc, Layout};

struct Heap;

// SAFETY: it never gives memory.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }
    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static HEAP: Heap = Heap;
