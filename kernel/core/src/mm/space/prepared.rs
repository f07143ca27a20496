// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that are cleared and copied while nothing is locked, for one that is to be made present.
//!
//! A page of an object is made with its pages locked, and a thread of higher priority that waits
//! for that lock must not wait for a page to be filled as well. So a cleared page is ready
//! beforehand, and what else is needed is an [`Obstacle`]: [`Prepared`] gets it, and all is looked
//! at again.

use super::AddressSpace;
use super::fault::Obstacle;
use crate::mm::frames::{OwnedBlock, OwnedPage};

/// What is ready for a page of an address space. A cleared page that was not needed is kept for the
/// next one.
pub(in crate::mm) struct Prepared<'a> {
    space: &'a AddressSpace,
    page: Option<OwnedPage>,
    copy: Option<PageCopy>,
    block: Block,
}

/// A page with the contents of another one.
pub(super) struct PageCopy {
    /// One use of the other one, so that its frame is not used for anything else.
    pub from: OwnedPage,
    /// The copy.
    pub page: OwnedPage,
}

/// A block of 2 MiB.
enum Block {
    /// Nobody has asked for one.
    Unasked,
    /// Ready.
    Cleared(OwnedBlock),
    /// There is none: pages of 4 KiB have to do.
    None,
}

impl<'a> Prepared<'a> {
    /// A cleared page, if one is free. Clears it for as long as 4 KiB take.
    pub(super) fn new(space: &'a AddressSpace) -> Self {
        let page = space.spare.take().or_else(OwnedPage::free);
        Self { space, page, copy: None, block: Block::Unasked }
    }

    /// Has a cleared page again, if the last one was needed and one is free.
    pub(super) fn refill(&mut self) {
        if self.page.is_none() {
            self.page = OwnedPage::free();
        }
    }

    /// The cleared page.
    ///
    /// # Errors
    /// [`Obstacle::NoPage`] if it is not ready.
    pub(in crate::mm) fn page(&mut self) -> Result<OwnedPage, Obstacle> {
        self.page.take().ok_or(Obstacle::NoPage)
    }

    /// A copy of `from`.
    ///
    /// # Errors
    /// [`Obstacle::NoCopy`] if it is not ready.
    pub(super) fn copy_of(&mut self, from: OwnedPage) -> Result<PageCopy, Obstacle> {
        self.copy.take_if(|copy| copy.from.frame() == from.frame()).ok_or(Obstacle::NoCopy(from))
    }

    /// A cleared block of 2 MiB; `None` if there is none at all.
    ///
    /// # Errors
    /// [`Obstacle::NoBlock`] if it is not ready.
    pub(super) fn block(&mut self) -> Result<Option<OwnedBlock>, Obstacle> {
        match core::mem::replace(&mut self.block, Block::Unasked) {
            Block::Unasked => Err(Obstacle::NoBlock),
            Block::Cleared(block) => Ok(Some(block)),
            Block::None => Ok(None),
        }
    }

    /// Clears a page. Nothing is locked; may sleep while cached files make room. `None` if there is
    /// no memory.
    pub(super) fn add_page(&mut self) -> Option<()> {
        self.page = Some(OwnedPage::zeroed()?);
        Some(())
    }

    /// Copies `from`, as [`add_page`](Self::add_page).
    pub(super) fn add_copy(&mut self, from: OwnedPage) -> Option<()> {
        let page = OwnedPage::copy_of(from.frame())?;
        self.copy = Some(PageCopy { from, page });
        Some(())
    }

    /// Clears a block, if there is one. Nothing is locked; takes a quarter of a millisecond.
    pub(super) fn add_block(&mut self) {
        self.block = OwnedBlock::zeroed().map_or(Block::None, Block::Cleared);
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if let Some(page) = self.page.take() {
            self.space.spare.put(page);
        }
    }
}
