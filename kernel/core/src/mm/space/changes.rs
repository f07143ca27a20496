// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who changes what is mapped, and how others see that.
//!
//! The regions are there twice. Whoever looks for one takes the spin lock of the layout, whose copy
//! does not change while that is held. A change is made to the other copy, preemptibly, and the two
//! change places; then it is made once more. So looking for a region takes logarithmic time,
//! however many a change concerns.

use super::revoke::{Collected, Revoked};
use super::{AddressSpace, NOTHING, Region, Regions};
use crate::arch::paging::{Scan, Steps};
use crate::arch::tlb::Stale;
use crate::mm::heap;
use crate::task::MutexGuard;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use crtos_abi::UserAddr;
use crtos_vm::{BLOCK_SIZE, FRAME_SIZE, Flags, Kind, Lock, MapError};

/// Where mappings go that are to lie low (MAP_32BIT): as under Linux in the second GiB, so that
/// what they jump to and refer to is within 31 bits, and the heap of a program has the first.
pub(super) const LOW: Range<UserAddr> = UserAddr::new(1 << 30)..UserAddr::new(2 << 30);

/// The right to change what is mapped, which one thread of the program has at a time.
pub(super) struct Changes<'a> {
    pub(super) space: &'a AddressSpace,
    /// A copy of the layout's.
    pub(super) regions: MutexGuard<'a, Regions>,
    /// Something is in change.
    begun: bool,
    /// What Linux is to let go at the end.
    revoked: Vec<Revoked>,
}

impl AddressSpace {
    /// Waits until nobody else changes what is mapped, and keeps others from it. May sleep.
    pub(super) fn changes(&self) -> Changes<'_> {
        Changes { space: self, regions: self.changes.lock(), begun: false, revoked: Vec::new() }
    }
}

impl Changes<'_> {
    /// Changes the regions, for others in one moment. `change` is called for each copy, with
    /// interrupts on. If it fails it has changed nothing.
    pub(super) fn apply(
        &mut self,
        change: impl Fn(&mut Regions) -> Result<(), MapError>,
    ) -> Result<(), MapError> {
        change(&mut self.regions)?;
        mem::swap(&mut *self.regions, &mut self.space.layout.lock().regions);
        change(&mut self.regions)
    }

    /// The preferred place of a mapping, if it is free.
    pub(super) fn hinted(&self, hint: UserAddr, length: u64, align: u64) -> Option<UserAddr> {
        let start = hint.align_down(align);
        let is_there = !start.is_null()
            && self.regions.is_allowed(start, length)
            && self.regions.is_free(start, length);
        is_there.then_some(start)
    }

    /// Room for a mapping that is to lie low.
    pub(super) fn low_room(&self, length: u64, align: u64) -> Result<UserAddr, MapError> {
        self.regions
            .find_free(length, align, LOW.end)
            .filter(|&start| start >= LOW.start)
            .ok_or(MapError::NoMemory)
    }

    /// Room for a mapping: below the top, or above it if all is taken.
    pub(super) fn room(&self, length: u64, align: u64) -> Result<UserAddr, MapError> {
        let top = self.space.mmap_top();
        self.regions
            .find_free(length, align, top)
            .or_else(|| self.regions.find_free(length, align, UserAddr::END))
            .ok_or(MapError::NoMemory)
    }

    /// Unmaps everything in `range`.
    pub(super) fn unmap(&mut self, range: Range<UserAddr>) -> Result<(), MapError> {
        self.remove(&range)?;
        self.space.sweep(range, &mut |pages| self.space.have_let_go(pages))
    }

    /// What unmaps gives memory back, unless it makes two regions of one.
    fn remove(&mut self, range: &Range<UserAddr>) -> Result<(), MapError> {
        if self.regions.is_within_one(range) && !heap::has_reserve() {
            return Err(MapError::NoMemory);
        }
        self.apply(|regions| regions.remove(range.start, range.end - range.start))
    }

    /// From now on until this is dropped, whoever wants to know what is mapped in these ranges
    /// waits.
    pub(super) fn begin(&mut self, ranges: [Range<UserAddr>; 2]) {
        self.space.layout.lock().in_change = ranges;
        self.begun = true;
    }

    /// Unmaps everything in `range`, which is in change.
    pub(super) fn clear(&mut self, range: Range<UserAddr>) -> Result<(), MapError> {
        self.remove(&range)?;
        self.space.sweep(range, &mut |pages| self.revoked.push(pages))
    }

    /// Moves the pages of `kept`, a part of `region`, to `target`, where nothing is. Then
    /// `new_length` bytes are mapped there. With `stays` something is mapped at `kept` as well: no
    /// page, and not locked. Both places are in change. Returns `target`.
    pub(super) fn move_region(
        &mut self,
        kept: Range<UserAddr>,
        region: &Region,
        (target, new_length): (UserAddr, u64),
        stays: bool,
    ) -> Result<UserAddr, MapError> {
        let space = self.space;
        // Everything that can fail comes first. Large pages move as small ones.
        for block in blocks(kept.clone()) {
            space.split(block.max(kept.start))?;
        }
        for block in blocks(target..target + (kept.end - kept.start)) {
            let mut stale = Stale::new(space.root);
            space.tables.lock().reserve(block.max(target), &mut stale)?;
        }
        let mut attributes = region.attributes.from(kept.start - region.start);
        if attributes.kind == Kind::Large {
            attributes.kind = Kind::Anonymous;
        }
        self.apply(|regions| regions.insert(target, new_length, attributes.clone()))?;
        if stays {
            self.apply(|regions| regions.lock(kept.start, kept.end - kept.start, Lock::None))?;
        } else {
            self.remove(&kept)?;
        }
        let mut exposed = Collected::new();
        let mut at = kept.start;
        while at < kept.end {
            let mut stale = Stale::new(space.root);
            let mut tables = space.tables.lock();
            match tables.scan(at..kept.end, &mut Steps::of_section()) {
                Scan::Page(address, ..) => {
                    at = address + FRAME_SIZE;
                    if let Some((entry, size)) = tables.take(address, &mut stale) {
                        if entry.flags().contains(Flags::EXPOSED) {
                            exposed.extend(address..at);
                        }
                        let to = target + (address - kept.start);
                        tables.map(to, size, entry, &mut stale)?;
                    }
                }
                Scan::Continue(next) => at = next,
            }
        }
        self.revoked.extend(exposed.finish());
        Ok(target)
    }
}

impl Drop for Changes<'_> {
    fn drop(&mut self) {
        if self.begun {
            self.space.layout.lock().in_change = [NOTHING; 2];
        }
        self.revoked.drain(..).for_each(|pages| self.space.have_let_go(pages));
    }
}

/// The blocks of 2 MiB that `range` lies in.
fn blocks(range: Range<UserAddr>) -> impl Iterator<Item = UserAddr> {
    let first = range.start.align_down(BLOCK_SIZE);
    (first.get()..range.end.get()).step_by(BLOCK_SIZE as usize).map(UserAddr::new)
}
