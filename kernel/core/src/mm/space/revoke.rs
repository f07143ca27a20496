// SPDX-License-Identifier: MIT OR Apache-2.0
//! Taking pages back from Linux: what was unmapped and Linux may still use stays out of the pool
//! until Linux has let it go.

use super::{AddressSpace, Piece, Shared};
use crate::mm::quota::Leaving;
use crate::mm::{frames, heap};
use crate::task;
use crate::time::{self, Nanos};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering;
use crtos_abi::UserAddr;
use crtos_channel::Join;
use crtos_vm::{FRAME_SIZE, Frame, FrameSize};

/// Most pages of one [`Revoked`].
pub(super) const LIMIT: usize = 4096;

/// A range whose pages Linux may still use: they are given back when this is dropped.
pub struct Revoked {
    /// Start of the range, page aligned.
    pub start: UserAddr,
    /// Bytes, a multiple of the page size.
    pub length: u64,
    /// The only page, without memory for a list.
    one: Option<Frame>,
    pages: Vec<(Frame, FrameSize)>,
    leaving: Leaving,
}

impl Revoked {
    /// The page at `address`.
    pub(super) fn one(address: UserAddr, frame: Frame) -> Self {
        let (one, pages, leaving) = (Some(frame), Vec::new(), Leaving::none());
        Self { start: address, length: FRAME_SIZE, one, pages, leaving }
    }
}

impl Drop for Revoked {
    fn drop(&mut self) {
        let one = self.one.map(|frame| (frame, FrameSize::Small));
        for (frame, size) in one.into_iter().chain(self.pages.drain(..)) {
            frames::release(frame, size);
        }
    }
}

/// Most pages of those that wait together.
const JOINED: usize = 512;

impl Join for Revoked {
    fn join(&mut self, mut other: Self) -> Result<(), Self> {
        let pages = &mut self.pages;
        let more = other.pages.len() + usize::from(other.one.is_some());
        if pages.len() + more > JOINED
            || pages.try_reserve(more).is_err()
            || !self.leaving.join(&mut other.leaving)
        {
            return Err(other);
        }
        pages.append(&mut other.pages);
        pages.extend(other.one.take().map(|frame| (frame, FrameSize::Small)));
        Ok(())
    }
}

/// What a space wants of Linux.
pub trait Revoke: Send + Sync {
    /// The range was unmapped or its rights were reduced. The implementor posts a revocation and
    /// keeps `pages` until Linux has carried it out; it does not wait for Linux. Thread context;
    /// may sleep; must not change what is mapped in the space, but may copy and resolve faults.
    /// Called before the call that unmapped returns.
    fn revoke(&self, pages: Revoked);

    /// Whether Linux has been told of all that was revoked. Thread context; may sleep.
    fn is_told(&self) -> bool;

    /// Has Linux read a piece of the file of a mirror. Returns how many bytes there were. Thread
    /// context, whatever the caller's own shadow thread does; sleeps.
    fn read(&self, piece: &Piece) -> Option<u64>;

    /// Has Linux share pages of a mirror. Returns how many, or an error as a system call does;
    /// `None` if nobody knows. Context as of `read`.
    fn share(&self, pages: &Shared) -> Option<i64>;
}

impl AddressSpace {
    /// Has Linux let pages go. If those are many and the heap has no reserve, Linux gets some time
    /// for that before it is told of more. Thread context; may sleep.
    pub(super) fn have_let_go(&self, pages: Revoked) {
        /// How often a reserve is looked for, a millisecond each.
        const TRIES: usize = 100;
        let are_many = pages.pages.len() > LIMIT / 2;
        self.revoke.revoke(pages);
        let mut left = TRIES;
        while are_many && left > 0 && !heap::has_reserve() {
            task::sleep_until(time::now() + Nanos::from_millis(1));
            left -= 1;
        }
    }
}

/// Pages taken out of the tables that Linux knows, until they are told.
pub(super) struct Collected {
    range: Option<Range<UserAddr>>,
    pub(super) pages: Vec<(Frame, FrameSize)>,
    leaving: Leaving,
}

impl Collected {
    pub(super) const fn new() -> Self {
        Self { range: None, pages: Vec::new(), leaving: Leaving::none() }
    }

    /// Adds a page that was present at `range` of `space`. It counts for the quota until Linux has
    /// let it go. There is room for it. Any context.
    pub(super) fn add(
        &mut self,
        space: &AddressSpace,
        range: Range<UserAddr>,
        (frame, size): (Frame, FrameSize),
    ) {
        space.present.fetch_sub(size.bytes(), Ordering::Relaxed);
        self.extend(range);
        self.pages.push((frame, size));
        self.leaving.add(space.quota(), size.bytes());
    }

    pub(super) fn extend(&mut self, range: Range<UserAddr>) {
        let whole = self.range.take().unwrap_or_else(|| range.clone());
        self.range = Some(whole.start.min(range.start)..whole.end.max(range.end));
    }

    pub(super) fn finish(self) -> Option<Revoked> {
        let Self { range, pages, leaving } = self;
        let range = range?;
        let (start, length) = (range.start, range.end - range.start);
        Some(Revoked { start, length, one: None, pages, leaving })
    }
}
