// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's heap. It grows by blocks of 2 MiB of private memory, and gives those back that are
//! empty. Not for real-time paths.
//!
//! A call of a program that makes the kernel keep more begins with the question whether there is a
//! reserve ([`has_reserve`]), and fails without one. So what may fail is refused while there is
//! memory for what must not: for the rest of the calls that have asked, and for what asks nobody.
//! An allocation finds memory in this order:
//!
//! 1. in the heap, or in a block of the pool, as long as this keeps [`frames::RESERVE`];
//! 2. in the piece that is set aside: from then on nobody has a reserve, until there is such a
//!    piece again;
//! 3. in the pool's last blocks.
//!
//! What is set aside is for small requests alone ([`SMALL`]). Those who ask for more can go
//! without.

use super::frames::{self, PRIVATE};
use super::layout;
use crate::sync::SpinLock;
use alloc::vec::Vec;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crtos_vm::sizes::{UNIT, class, class_for, size_of_class};
use crtos_vm::{BLOCK_SIZE, FrameSize};
use talc::base::binning::Binning;
use talc::base::{CHUNK_UNIT, Talc};
use talc::source::Source;

struct Heap {
    memory: SpinLock<Memory>,
    /// Whether the piece is set aside, for those who do not hold the lock.
    has_reserve: AtomicBool,
    size: AtomicU64,
    used: AtomicU64,
}

struct Memory {
    talc: Talc<Blocks, Classes>,
    reserve: Option<Piece>,
}

/// The piece that is set aside.
struct Piece(NonNull<u8>);

// SAFETY: nobody else has that memory.
unsafe impl Send for Piece {}

impl Piece {
    const LAYOUT: Layout = match Layout::from_size_align((512 << 10) - TAIL, 16) {
        Ok(layout) => layout,
        Err(_) => panic!(),
    };
}

/// Most bytes of a request that is served from what is set aside.
const SMALL: usize = 128 << 10;

/// The lists of free pieces: one for each class of sizes. The allocator also searches the list
/// before the one whose pieces are all large enough, with interrupts off for as long as that is.
/// So there is an empty one before each.
struct Classes;

impl Binning for Classes {
    /// Enough for all that is smaller than two blocks.
    type AvailabilityBitField = [usize; 7];

    fn size_to_bin(size: usize) -> u32 {
        2 * class(size) + 1
    }

    fn size_to_bin_ceil(size: usize) -> u32 {
        2 * class_for(size) + 1
    }
}

const _: () = assert!(CHUNK_UNIT == UNIT);
const _: () = assert!(2 * class(2 * BLOCK_SIZE as usize) + 1 < Classes::BIN_COUNT);

/// Bytes behind each piece in which the allocator keeps its books.
const TAIL: usize = size_of::<usize>();

/// What is asked of the allocator for a request: a piece of the size of a class.
fn rounded(layout: Layout) -> Layout {
    let size = size_of_class(class_for(layout.size().saturating_add(TAIL))) - TAIL;
    // Who asks for nearly all addresses gets nothing.
    Layout::from_size_align(size, layout.align()).unwrap_or(layout)
}

/// The blocks that the heap has of the pool.
#[derive(Debug)]
struct Blocks;

// SAFETY: the heap is not used here.
unsafe impl Source for Blocks {
    const TRACK_HEAP_END: bool = true;

    /// The heap grows in [`Heap::grow`].
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

impl Heap {
    /// Memory of the heap, or of the pool, which keeps `kept` frames.
    fn allocate(&self, memory: &mut Memory, layout: Layout, kept: u64) -> Option<NonNull<u8>> {
        loop {
            // SAFETY: no caller gives a layout of size 0.
            let piece = unsafe { memory.talc.allocate(rounded(layout)) };
            if piece.is_some() {
                return piece;
            }
            self.grow(memory, layout, kept)?;
        }
    }

    /// Adds a block that serves the request; `None` if there is none.
    fn grow(&self, memory: &mut Memory, layout: Layout, kept: u64) -> Option<()> {
        // A fresh block serves no larger request than this, and one of this size for certain.
        const BOOKKEEPING: usize = 64 << 10;
        if rounded(layout).size() + layout.align() > BLOCK_SIZE as usize - BOOKKEEPING {
            return None;
        }
        let block = PRIVATE.allocate_beyond(FrameSize::Large, kept)?;
        // SAFETY: the block was just taken from the pool and belongs to the heap from now on.
        unsafe { memory.talc.claim(layout::direct(block), BLOCK_SIZE as usize) };
        self.size.fetch_add(BLOCK_SIZE, Ordering::Relaxed);
        Some(())
    }

    /// Memory of what is set aside, in the heap or in the pool.
    #[cold]
    fn allocate_reserved(&self, memory: &mut Memory, layout: Layout) -> Option<NonNull<u8>> {
        if layout.size() + layout.align() > SMALL {
            return None;
        }
        self.has_reserve.store(false, Ordering::Relaxed);
        if let Some(Piece(piece)) = memory.reserve.take() {
            // SAFETY: it came from the allocator with that layout.
            unsafe { memory.talc.deallocate(piece.as_ptr(), rounded(Piece::LAYOUT)) };
        }
        self.allocate(memory, layout, 0)
    }

    /// Sets a piece aside, if there is none and there is memory for it.
    #[cold]
    fn restore_reserve(&self) -> bool {
        let mut memory = self.memory.lock();
        if memory.reserve.is_none() {
            let piece = self.allocate(&mut memory, Piece::LAYOUT, frames::RESERVE);
            memory.reserve = piece.map(Piece);
        }
        let has_reserve = memory.reserve.is_some();
        self.has_reserve.store(has_reserve, Ordering::Relaxed);
        has_reserve
    }
}

// SAFETY: memory comes from the allocator behind the lock, which never hands out the same twice.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut memory = self.memory.lock();
        let piece = match self.allocate(&mut memory, layout, frames::RESERVE) {
            None => self.allocate_reserved(&mut memory, layout),
            piece => piece,
        };
        drop(memory);
        let Some(piece) = piece else { return ptr::null_mut() };
        self.used.fetch_add(layout.size() as u64, Ordering::Relaxed);
        piece.as_ptr()
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: callers of `dealloc` say that the memory came from `alloc` with this layout.
        unsafe { self.memory.lock().talc.deallocate(memory, rounded(layout)) }
    }
}

#[global_allocator]
static HEAP: Heap = Heap {
    memory: SpinLock::new(Memory { talc: Talc::new(Blocks), reserve: None }),
    has_reserve: AtomicBool::new(false),
    size: AtomicU64::new(0),
    used: AtomicU64::new(0),
};

/// Gives the heap its first memory.
///
/// # Safety
/// `length` bytes at `start` belong to nobody else for ever.
pub unsafe fn set_up(start: NonNull<u8>, length: usize) {
    // SAFETY: the caller gives this memory to the heap for ever.
    unsafe { HEAP.memory.lock().talc.claim(start.as_ptr(), length) };
    HEAP.size.fetch_add(length as u64, Ordering::Relaxed);
}

/// Bytes of the heap: all, and in use.
pub fn usage() -> (u64, u64) {
    (HEAP.size.load(Ordering::Relaxed), HEAP.used.load(Ordering::Relaxed))
}

/// Whether there is memory for what a program asks for. What a program can make the kernel keep
/// starts with this question and fails with ENOMEM or EAGAIN, so that the reserve is left for what
/// must not fail. Any context.
#[inline]
pub fn has_reserve() -> bool {
    HEAP.has_reserve.load(Ordering::Relaxed) || HEAP.restore_reserve()
}

/// Makes room for `more` values behind those of `list`, where a program makes the kernel keep them:
/// as [`has_reserve`] says, and if that many fit in one piece of memory. Otherwise it says `false`
/// and has changed nothing. Any context.
pub fn makes_room<T>(list: &mut Vec<T>, more: usize) -> bool {
    has_reserve() && list.try_reserve(more).is_ok()
}

/// Whether there is memory for a few bytes that come to an end by themselves: a reserve, or all of
/// the pool's last blocks. Any context.
pub fn has_rest() -> bool {
    has_reserve() || PRIVATE.usage().1 >= frames::RESERVE
}

/// Whether there is memory for so many bytes that a thread needs for the time of a call, in which
/// it may sleep: a little each may have without a reserve. Any context.
#[inline]
pub fn lends(bytes: usize) -> bool {
    /// Of all threads at once, about 1 MiB.
    const LITTLE: usize = 1024;
    bytes <= LITTLE || has_reserve()
}
