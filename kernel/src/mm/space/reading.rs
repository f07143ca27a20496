// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading pages of files when they are touched: those of mappings that were too large to be read at once.
//!
//! The shadow has such a file mapped, as a mirror. Linux copies from there to the *window* of the space: pages at addresses that no program has, which
//! Linux and the kernel alone can reach. From the window they are copied to the object, a few around the one that was touched.

use super::{AddressSpace, FaultError, Page};
use crate::mm::frames;
use crate::sync::SpinLock;
use crate::task::Mutex;
use core::ops::Range;
use crtos_abi::channel::SHADOW_START;
use crtos_vm::{FRAME_SIZE, Frame, FrameSize, MapError};

/// Bytes that are read at a time, aligned to that.
const AHEAD: u64 = 64 * 1024;
const PAGES: usize = (AHEAD / FRAME_SIZE) as usize;

/// Addresses of the window in the shadow.
pub(super) const WINDOW: Range<u64> = SHADOW_START - AHEAD..SHADOW_START;

/// The window of a space.
pub(super) struct Window {
    /// Held while Linux fills it and until what it has is taken from it.
    filling: Mutex<()>,
    /// Its pages, made when Linux asks for them.
    pages: SpinLock<[Option<Frame>; PAGES]>,
}

impl Window {
    pub(super) const fn new() -> Self {
        Self { filling: Mutex::new(()), pages: SpinLock::new([None; PAGES]) }
    }

    /// The page at `address`, for Linux; `None` if that is not in the window.
    pub(super) fn page(&self, address: u64) -> Option<Result<Page, FaultError>> {
        let index = WINDOW.contains(&address).then(|| (address - WINDOW.start) / FRAME_SIZE)?;
        let frame = self.frame(index as usize).ok_or(FaultError::NoMemory);
        Some(frame.map(|frame| Page { frame: frame.0, writable: true, dirty: true }))
    }

    fn frame(&self, index: usize) -> Option<Frame> {
        let there = self.pages.lock()[index];
        if there.is_some() {
            return there;
        }
        let fresh = frames::zeroed_page(FrameSize::Small)?;
        let first = *self.pages.lock()[index].get_or_insert(fresh);
        if first != fresh {
            // Another thread was faster.
            frames::release(fresh, FrameSize::Small);
        }
        Some(first)
    }
}

impl Drop for Window {
    /// Linux has let go of everything.
    fn drop(&mut self) {
        for frame in self.pages.lock().iter().flatten() {
            frames::release(*frame, FrameSize::Small);
        }
    }
}

impl AddressSpace {
    /// Has the page at `address`, and what lies around it, read from its file. No lock is held. Sleeps for as long as Linux takes.
    pub(super) fn bring_in(&self, address: u64) -> Result<(), FaultError> {
        let region = self.layout.lock().regions.find(address).ok_or(FaultError::Unmapped)?;
        let page = address & !(FRAME_SIZE - 1);
        let (object, offset) = region.object_at(page).ok_or(FaultError::Beyond)?;
        let (mirror, part) = self.mirror_of(object, offset).ok_or(FaultError::Beyond)?;
        let start = (offset & !(AHEAD - 1)).max(part.start);
        let end = (offset & !(AHEAD - 1)) + AHEAD;
        let mut wanted = start..end.min(part.end).min(object.limit());
        let touched = offset..offset + FRAME_SIZE;

        let _filling = self.window.filling.lock();
        let _loading = object.loading();
        while let Some(missing) = object.missing(wanted.clone(), AHEAD) {
            let copy = |range: &Range<u64>| {
                let from = mirror + (range.start - part.start);
                self.revoke.copy(WINDOW.start, from, range.end - range.start)
            };
            let there = if copy(&missing) {
                missing
            } else if object.missing(touched.clone(), FRAME_SIZE).is_none() {
                // A part of what lies around it cannot be read, or is not there any more.
                return Ok(());
            } else if copy(&touched) {
                touched.clone()
            } else {
                return Err(FaultError::Beyond);
            };
            for (index, offset) in there.clone().step_by(FRAME_SIZE as usize).enumerate() {
                let from = self.window.frame(index).ok_or(FaultError::NoMemory)?;
                let copy = frames::copied_page(from, FrameSize::Small);
                let put = copy.ok_or(MapError::NoMemory).and_then(|copy| object.put(offset, copy));
                put.map_err(|_| FaultError::NoMemory)?;
            }
            wanted.start = wanted.start.max(there.end);
        }
        Ok(())
    }
}
