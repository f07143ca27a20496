// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two pools of memory: the kernel's private one, which Linux cannot see, and the one whose
//! pages make up processes, which Linux shares.

use super::space::copy::copy;
use super::{layout, page_cache, window};
use crate::sync::SpinLock;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crtos_vm::{FRAME_SIZE, Frame, FramePool, FrameSize};
use spin::Once;

/// A pool. All calls from any context, in constant time.
pub struct Pool(Once<SpinLock<FramePool>>);

/// The kernel's memory.
pub static PRIVATE: Pool = Pool::new();
/// Pages of processes.
pub static SHARED: Pool = Pool::new();

impl Pool {
    /// One that is not filled yet.
    pub(super) const fn new() -> Self {
        Self(Once::new())
    }

    /// Calls `act` with the pool, interrupts off; `None` if it is not filled yet.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut FramePool) -> R) -> Option<R> {
        self.0.get().map(|pool| act(&mut pool.lock()))
    }

    /// Fills the pool. Once, at boot.
    pub(crate) fn set_up(&self, pool: FramePool) {
        self.0.call_once(|| SpinLock::new(pool));
    }

    /// Takes a frame, whose content is undefined.
    pub(crate) fn allocate(&self, size: FrameSize) -> Option<Frame> {
        self.0.get()?.lock().allocate(size)
    }

    /// The same, as long as so many frames of 4 KiB are left.
    pub(crate) fn allocate_beyond(&self, size: FrameSize, left: u64) -> Option<Frame> {
        let mut pool = self.0.get()?.lock();
        (pool.available() >= left + size.bytes() / FRAME_SIZE).then(|| pool.allocate(size))?
    }

    /// Gives a frame back.
    pub(crate) fn free(&self, frame: Frame, size: FrameSize) {
        if let Some(pool) = self.0.get() {
            pool.lock().free(frame, size);
        }
    }

    /// Frames of 4 KiB: all, and free ones.
    pub fn usage(&self) -> (u64, u64) {
        self.0.get().map_or((0, 0), |pool| {
            let pool = pool.lock();
            (pool.total(), pool.available())
        })
    }
}

/// Counts one more user of a page of a program, who will [`release`] it; `false` if it has too
/// many. Any context.
#[must_use]
pub(crate) fn share(frame: Frame) -> bool {
    if window::contains(frame) {
        return window::share(frame);
    }
    let Some(pool) = SHARED.0.get() else { return false };
    let mut pool = pool.lock();
    !pool.contains(frame) || pool.share(frame)
}

/// As [`share`], but of memory of programs alone.
#[must_use]
pub(crate) fn pin(frame: Frame) -> bool {
    let Some(pool) = SHARED.0.get() else { return false };
    let mut pool = pool.lock();
    pool.contains(frame) && pool.share(frame)
}

/// Whether a page of a program has several users. Pages from elsewhere always have. Any context.
pub(crate) fn is_shared(frame: Frame) -> bool {
    SHARED.0.get().is_none_or(|pool| {
        let mut pool = pool.lock();
        !pool.contains(frame) || pool.is_shared(frame)
    })
}

/// Gives a page of a program back; the last user frees it. Pages from elsewhere (the time page)
/// stay what they are. Any context.
pub(crate) fn release(frame: Frame, size: FrameSize) {
    if window::contains(frame) {
        return window::release(frame);
    }
    if let Some(pool) = SHARED.0.get() {
        let mut pool = pool.lock();
        if pool.contains(frame) {
            pool.free(frame, size);
        }
    }
}

/// Most pages that are given up.
const RETIRED: usize = 64;

/// Pages that are broken: each has a use that nobody gives back. 0 where there is none.
static BROKEN: [AtomicU64; RETIRED] = [const { AtomicU64::new(0) }; RETIRED];

/// Pages in [`BROKEN`].
static BROKEN_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Sees to it that the page of a program, who has it alone, is never used again once it is
/// [`release`]d. `false` if others use it, too, or if that happened too often. Any context.
#[must_use]
pub(crate) fn retire(frame: Frame) -> bool {
    let Some(pool) = SHARED.0.get() else { return false };
    let mut pool = pool.lock();
    let count = BROKEN_COUNT.load(Ordering::Relaxed);
    if !pool.contains(frame) || pool.is_shared(frame) || count == RETIRED || !pool.share(frame) {
        return false;
    }
    BROKEN[count].store(frame.0, Ordering::Relaxed);
    BROKEN_COUNT.store(count + 1, Ordering::Release);
    true
}

/// Whether a page was retired. Any context.
#[inline]
pub(crate) fn is_retired(frame: Frame) -> bool {
    let count = BROKEN_COUNT.load(Ordering::Acquire);
    // No page ever was, on most machines.
    count > 0 && is_among_broken(frame, count)
}

#[cold]
fn is_among_broken(frame: Frame, count: usize) -> bool {
    BROKEN[..count].iter().any(|broken| broken.load(Ordering::Relaxed) == frame.0)
}

/// Free frames of private memory that are left for what must not fail: the tables of programs, the
/// stacks of their threads and most of the heap leave them. At least two whole blocks are among
/// them, since no block is broken while another one has a free frame.
pub(crate) const RESERVE: u64 = 1024;

/// A cleared page of 4 KiB from private memory for a table of a program; `None` when memory runs
/// low.
pub(crate) fn zeroed_table() -> Option<Frame> {
    let frame = PRIVATE.allocate_beyond(FrameSize::Small, RESERVE)?;
    clear(frame, FRAME_SIZE);
    Some(frame)
}

/// A cleared page of 4 KiB from private memory for a table of the kernel.
pub(crate) fn zeroed_kernel_table() -> Option<Frame> {
    let frame = PRIVATE.allocate(FrameSize::Small)?;
    clear(frame, FRAME_SIZE);
    Some(frame)
}

/// Gives back what [`zeroed_table`] gave.
pub(crate) fn free_table(frame: Frame) {
    PRIVATE.free(frame, FrameSize::Small);
}

/// Returns what `take` finds. While that is nothing, what is kept of files goes first. May sleep,
/// for as long as freeing a file takes: with nothing locked that a thread of higher priority may
/// want.
pub(crate) fn evicting<T>(mut take: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        let taken = take();
        if taken.is_some() || !page_cache::evict() {
            return taken;
        }
    }
}

/// A cleared page for a process, if one is free. Clearing a large one takes long.
pub(crate) fn zeroed_page(size: FrameSize) -> Option<Frame> {
    let frame = SHARED.allocate(size)?;
    clear(frame, size.bytes());
    Some(frame)
}

/// A page for a program, if one is free, with the contents of `from`, one of that size, which
/// others may change meanwhile. Copying a large one takes long.
pub(crate) fn copied_page(from: Frame, size: FrameSize) -> Option<Frame> {
    let frame = SHARED.allocate(size)?;
    // SAFETY: the new frame belongs to the caller, `from` is in use and so does not go; both are
    // mapped, and no Rust object lies in them. The instruction goes on where it was after an
    // interrupt.
    unsafe {
        asm!("rep movsq", inout("rdi") layout::direct(frame) => _, inout("rsi") layout::direct(from) => _,
            inout("rcx") size.bytes() / 8 => _, options(nostack, preserves_flags));
    }
    Some(frame)
}

/// A use of a page of 4 KiB, mostly the only one; it is given back when this is dropped.
pub struct OwnedPage(Frame);

impl OwnedPage {
    /// A cleared one. May sleep, as [`evicting`]; `None` if there is none.
    pub(super) fn zeroed() -> Option<Self> {
        evicting(|| zeroed_page(FrameSize::Small)).map(Self)
    }

    /// A cleared one, if one is free at once. Any context.
    pub(super) fn free() -> Option<Self> {
        zeroed_page(FrameSize::Small).map(Self)
    }

    /// One more use of a page that is in use; `None` if it has too many. Any context.
    pub(super) fn shared(frame: Frame) -> Option<Self> {
        share(frame).then_some(Self(frame))
    }

    /// One with the contents of `from`, which others may change meanwhile. May sleep, as
    /// [`evicting`]; `None` if there is none.
    pub(super) fn copy_of(from: Frame) -> Option<Self> {
        evicting(|| copied_page(from, FrameSize::Small)).map(Self)
    }

    /// A use of a page of Linux at a place, which is the first one.
    pub(super) fn at_place(place: Frame) -> Self {
        Self(place)
    }

    /// The page's frame, which stays this one's.
    pub(super) fn frame(&self) -> Frame {
        self.0
    }

    /// The page's frame, whose use is the caller's now.
    pub(super) fn into_frame(self) -> Frame {
        core::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for OwnedPage {
    fn drop(&mut self) {
        release(self.0, FrameSize::Small);
    }
}

/// A place for one page. Any context; nobody waits.
pub(super) struct SparePage(AtomicU64);

/// What is in a [`SparePage`] that is empty: not the address of a frame.
const EMPTY: u64 = u64::MAX;

impl SparePage {
    /// An empty one.
    pub(super) const fn none() -> Self {
        Self(AtomicU64::new(EMPTY))
    }

    /// Takes what is there.
    pub(super) fn take(&self) -> Option<OwnedPage> {
        self.exchange(EMPTY)
    }

    /// Puts a page there, in place of another one.
    pub(super) fn put(&self, page: OwnedPage) {
        drop(self.exchange(page.into_frame().0));
    }

    fn exchange(&self, frame: u64) -> Option<OwnedPage> {
        // What was written to the page comes before, for whoever takes it.
        let before = self.0.swap(frame, Ordering::AcqRel);
        (before != EMPTY).then_some(OwnedPage(Frame(before)))
    }
}

impl Drop for SparePage {
    fn drop(&mut self) {
        self.take();
    }
}

/// A cleared page of 2 MiB, like [`OwnedPage`].
pub(crate) struct OwnedBlock(Frame);

impl OwnedBlock {
    /// Clears one, which takes a quarter of a millisecond. May sleep, as [`evicting`]; `None` if
    /// there is none.
    pub(super) fn zeroed() -> Option<Self> {
        evicting(|| zeroed_page(FrameSize::Large)).map(Self)
    }

    /// The block's frame, whose use is the caller's now.
    pub(super) fn into_frame(self) -> Frame {
        core::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for OwnedBlock {
    fn drop(&mut self) {
        release(self.0, FrameSize::Large);
    }
}

/// A page for a program that starts with `bytes`; the rest is zero. May sleep, as [`evicting`].
pub fn filled_page(bytes: &[u8]) -> Option<OwnedPage> {
    let page = OwnedPage::zeroed()?;
    let length = bytes.len().min(FRAME_SIZE as usize);
    // SAFETY: the frame belongs to the caller, is mapped for the kernel, and no Rust object lies in
    // it.
    unsafe { layout::direct(page.0).copy_from_nonoverlapping(bytes.as_ptr(), length) };
    Some(page)
}

/// Copies what lies at `offset` of a frame that the caller has a use of. Not beyond its end.
pub(super) fn copy_out(frame: Frame, offset: u64, to: &mut [u8]) {
    let length = to.len().min((FRAME_SIZE - offset) as usize);
    // SAFETY: the frame is in use and mapped, what is copied lies in it, and `to` is the kernel's
    // own.
    unsafe { copy(to.as_mut_ptr(), layout::direct(frame).wrapping_add(offset as usize), length) };
}

/// Copies to `offset` of a frame that the caller has a use of. Not beyond its end.
pub(super) fn copy_in(frame: Frame, offset: u64, from: &[u8]) {
    let length = from.len().min((FRAME_SIZE - offset) as usize);
    // SAFETY: the frame is in use and mapped, what is replaced lies in it, and `from` is the
    // kernel's own.
    unsafe { copy(layout::direct(frame).wrapping_add(offset as usize), from.as_ptr(), length) };
}

/// Clears `length` bytes (a multiple of 8) of a frame that the caller has a use of. Can be
/// preempted at every word.
pub(crate) fn clear(frame: Frame, length: u64) {
    // SAFETY: the memory belongs to the caller, is mapped, and no Rust object lies in it. The
    // instruction goes on where it was after an interrupt.
    unsafe {
        asm!("rep stosq", inout("rdi") layout::direct(frame) => _, inout("rcx") length / 8 => _, in("rax") 0,
            options(nostack, preserves_flags));
    }
}
