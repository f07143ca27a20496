// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Linux hands to the kernel.
//!
//! Contents of files go into a [`Batch`] of pages that Linux's kernel alone can reach while it
//! fills them: neither a program nor its shadow can make up what others will see. Pages of large
//! mappings are read when they are touched, a few around each.
//!
//! What concerns one program alone comes by way of the *bounce buffer*: pages of each space at
//! addresses that no program has, which Linux and the kernel alone can reach. Linux asks for each
//! of them once.

use super::copy::copy;
use super::{AddressSpace, FaultError, Page};
use crate::mm::frames;
use crate::mm::frames::OwnedPage;
use crate::mm::held::Held;
use crate::mm::layout;
use crate::sync::SpinLock;
use crate::task::{Mutex, MutexGuard};
use core::ops::Range;
use crtos_abi::UserAddr;
use crtos_abi::channel::{MOST_READ_PAGES, SHADOW_START};
use crtos_channel::operation::Identity;
use crtos_vm::{FRAME_SIZE, Frame, FrameSize, MapError};

/// Bytes that are read at a time, aligned to that: Linux is called for each.
const AHEAD: u64 = 64 * 1024;
const PAGES: usize = (AHEAD / FRAME_SIZE) as usize;

/// Addresses of the bounce buffer in the shadow.
pub(super) const BOUNCE: Range<UserAddr> =
    UserAddr::new(SHADOW_START - AHEAD)..UserAddr::new(SHADOW_START);

/// The bounce buffer of a space.
pub(super) struct BounceBuffer {
    /// Held while Linux fills it and until what it has is taken from it.
    filling: Mutex<()>,
    /// Its pages, made when Linux asks for them.
    pages: SpinLock<[Option<Frame>; PAGES]>,
}

impl BounceBuffer {
    pub(super) const fn new() -> Self {
        Self { filling: Mutex::new(()), pages: SpinLock::new([None; PAGES]) }
    }

    /// The page at `address`, for Linux; `None` if that is not in the bounce buffer.
    pub(super) fn page(&self, address: UserAddr) -> Option<Result<Page, FaultError>> {
        let index = BOUNCE.contains(&address).then(|| (address - BOUNCE.start) / FRAME_SIZE)?;
        let frame = self.frame(index as usize).ok_or(FaultError::NoMemory);
        Some(frame.map(|frame| Page { frame, writable: true, dirty: true, is_of_device: false }))
    }

    fn frame(&self, index: usize) -> Option<Frame> {
        let there = self.pages.lock()[index];
        if there.is_some() {
            return there;
        }
        let fresh = OwnedPage::zeroed()?.into_frame();
        let first = *self.pages.lock()[index].get_or_insert(fresh);
        if first != fresh {
            // Another thread was faster.
            frames::release(fresh, FrameSize::Small);
        }
        Some(first)
    }
}

impl Drop for BounceBuffer {
    /// Linux has let go of everything.
    fn drop(&mut self) {
        let pages = core::mem::replace(&mut *self.pages.lock(), [None; PAGES]);
        for frame in pages.into_iter().flatten() {
            frames::release(frame, FrameSize::Small);
        }
    }
}

/// The bounce buffer, held by who has Linux fill it.
pub struct Filling<'a> {
    buffer: &'a BounceBuffer,
    _held: MutexGuard<'a, ()>,
}

impl Filling<'_> {
    /// Where Linux is to store what it hands over.
    pub const START: UserAddr = BOUNCE.start;
    /// Bytes that fit.
    pub const LENGTH: u64 = AHEAD;

    /// A page for an object with what lies at `offset`, a multiple of the page size; of that
    /// `length` bytes count, and zeros are behind them.
    pub fn page(&self, offset: u64, length: u64) -> Option<OwnedPage> {
        let from = self.buffer.frame((offset / FRAME_SIZE) as usize)?;
        if length >= FRAME_SIZE {
            return OwnedPage::copy_of(from);
        }
        let page = OwnedPage::zeroed()?;
        // SAFETY: both frames are in use, and the new one is the caller's alone.
        unsafe { copy(layout::direct(page.frame()), layout::direct(from), length as usize) };
        Some(page)
    }

    /// Copies what lies at `offset`, within a page.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), MapError> {
        let from = self.buffer.frame((offset / FRAME_SIZE) as usize).ok_or(MapError::NoMemory)?;
        let at = (offset % FRAME_SIZE) as usize;
        let length = to.len().min(FRAME_SIZE as usize - at);
        // SAFETY: the frame is in use, what is copied lies in it, and `to` is the kernel's own.
        unsafe { copy(to.as_mut_ptr(), layout::direct(from).wrapping_add(at), length) };
        Ok(())
    }
}

impl AddressSpace {
    /// Waits for the bounce buffer, and holds it. May sleep; before any
    /// [`Object::loading`](crate::mm::object::Object::loading), and not while a page of a file may
    /// be missing.
    pub fn bounce_buffer(&self) -> Filling<'_> {
        Filling { buffer: &self.bounce_buffer, _held: self.bounce_buffer.filling.lock() }
    }

    /// Has the page at `address`, and what lies around it, read from its file. No lock is held.
    /// Sleeps for as long as Linux takes.
    pub(super) fn bring_in(&self, address: UserAddr) -> Result<(), FaultError> {
        let region = self.region_at(address).ok_or(FaultError::Unmapped)?;
        let page = address.page_down();
        let (object, offset) = region.object_at(page).ok_or(FaultError::Beyond)?;
        if let Some(writes) = object.linux_writes() {
            return self.bring_in_shared(object, offset, writes);
        }
        let (mirror, identity, part) = self.mirror_of(object, offset).ok_or(FaultError::Beyond)?;
        let start = (offset & !(AHEAD - 1)).max(part.start);
        let end = (offset & !(AHEAD - 1)) + AHEAD;
        let wanted = start..end.min(part.end).min(object.limit());
        let touched = offset..offset + FRAME_SIZE;
        let _loading = object.loading();
        // What lies around it may not be readable.
        for range in [wanted, touched.clone()] {
            self.read_missing(object, mirror, identity, range)?;
            if object.missing(touched.clone(), FRAME_SIZE).is_none() {
                return Ok(());
            }
        }
        Err(FaultError::Beyond)
    }

    /// Has those pages in `range` read that `object` does not have, up to the first one that cannot
    /// be read. [`FaultError::NoMemory`] alone.
    fn read_missing(
        &self,
        object: &Held,
        mirror: UserAddr,
        identity: Identity,
        mut range: Range<u64>,
    ) -> Result<(), FaultError> {
        while let Some(missing) = object.missing(range.clone(), AHEAD) {
            let (offset, length) = (missing.start, missing.end - missing.start);
            let batch = Batch::new(length).map_err(|_| FaultError::NoMemory)?;
            let piece = Piece { mirror, identity, offset, length, pages: batch.list() };
            let count = self.revoke.read(&piece).unwrap_or(0).min(length);
            let whole = count.next_multiple_of(FRAME_SIZE);
            batch.put(object, offset, whole).map_err(|_| FaultError::NoMemory)?;
            if whole < length {
                break;
            }
            range.start = missing.end;
        }
        Ok(())
    }
}

/// A piece of a file that Linux is to read.
pub struct Piece {
    /// Where the mirror begins for which Linux keeps the file.
    pub mirror: UserAddr,
    /// Which file that is.
    pub identity: Identity,
    /// Where in the file.
    pub offset: u64,
    /// Bytes, at most [`Batch::LENGTH`].
    pub length: u64,
    /// [`Batch::list`].
    pub pages: u64,
}

/// Pages that Linux's kernel fills, and nobody else knows.
pub struct Batch {
    /// A page with the addresses of the others.
    list: OwnedPage,
    pages: [Option<OwnedPage>; PAGES],
}

impl Batch {
    /// Most bytes.
    pub const LENGTH: u64 = AHEAD;

    /// Pages for `length` bytes, all zero. Not under a lock.
    pub fn new(length: u64) -> Result<Self, MapError> {
        let mut pages = [const { None }; PAGES];
        let mut list = [0; PAGES * size_of::<u64>()];
        let count = length.div_ceil(FRAME_SIZE) as usize;
        for (page, word) in pages.iter_mut().zip(list.chunks_exact_mut(8)).take(count) {
            let fresh = OwnedPage::zeroed().ok_or(MapError::NoMemory)?;
            word.copy_from_slice(&fresh.frame().0.to_le_bytes());
            *page = Some(fresh);
        }
        let list = frames::filled_page(&list).ok_or(MapError::NoMemory)?;
        Ok(Self { list, pages })
    }

    /// The address in the cell of a page with the addresses of the pages. Linux may use them as
    /// long as this is not given up.
    pub fn list(&self) -> u64 {
        self.list.frame().0
    }

    /// Puts the pages of the first `length` bytes at `offset` of `object`.
    pub fn put(self, object: &Held, offset: u64, length: u64) -> Result<(), MapError> {
        let offsets = (offset..offset + length).step_by(FRAME_SIZE as usize);
        for (page, offset) in self.pages.into_iter().flatten().zip(offsets) {
            object.put(offset, page)?;
        }
        Ok(())
    }
}

const _: () = assert!(PAGES as u64 <= MOST_READ_PAGES);
