// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mirrors: where the shadow maps the files whose pages the program shares, and which of these pages the program has changed.
//! The mappings themselves are made in [`crate::file_map`].

use super::revoke::Collected;
use super::{AddressSpace, MapError, Region};
use crate::arch::paging::{Scan, Steps};
use crate::arch::tlb::Stale;
use crate::mm::object::Object;
use alloc::sync::Arc;
use core::ops::Range;
use crtos_abi::channel::{MIRRORS_END, MIRRORS_START};
use crtos_vm::{Entry, FRAME_SIZE, Flags, FrameSize};

/// A part of a file that the shadow maps.
#[derive(Clone, Debug)]
pub struct Mirror {
    address: u64,
    length: u64,
    /// The object of the file and the offset at the address; none while it is made.
    target: Option<(Arc<Object>, u64)>,
}

impl Mirror {
    /// Where `offset` of `object` is mirrored, and how many bytes from there.
    fn find(&self, object: &Object, offset: u64) -> Option<(u64, u64)> {
        let (own, start) = self.target.as_ref()?;
        let inside = offset.checked_sub(*start).filter(|&inside| inside < self.length)?;
        (**own == *object).then_some((self.address + inside, self.length - inside))
    }
}

/// A run of pages that the program has changed.
pub struct Dirty {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Where the shadow has them.
    pub mirror: u64,
}

/// Most pages of a run.
const RUN: u64 = 32;
/// Pages of it that are looked at with interrupts off.
const STEP: u64 = 8;

impl AddressSpace {
    /// Addresses for a mirror of `length` bytes. To be followed by `set_mirror` or `forget_mirror`.
    pub fn reserve_mirror(&self, length: u64) -> Result<u64, MapError> {
        let mut mirrors = self.mirrors.lock();
        let mut address = MIRRORS_START;
        // They are sorted.
        let mut index = 0;
        for mirror in mirrors.iter() {
            if mirror.address - address >= length {
                break;
            }
            address = mirror.address + mirror.length;
            index += 1;
        }
        if MIRRORS_END - address < length {
            return Err(MapError::NoMemory);
        }
        mirrors.try_reserve(1).map_err(|_| MapError::NoMemory)?;
        mirrors.insert(index, Mirror { address, length, target: None });
        Ok(address)
    }

    /// Notes what the mirror at `address` shows.
    pub fn set_mirror(&self, address: u64, object: Arc<Object>, offset: u64) {
        for mirror in self.mirrors.lock().iter_mut() {
            if mirror.address == address {
                mirror.target = Some((object.clone(), offset));
            }
        }
    }

    /// Forgets the mirror at `address`, which the shadow has unmapped.
    pub fn forget_mirror(&self, address: u64) {
        self.mirrors.lock().retain(|mirror| mirror.address != address);
    }

    /// Whether there are any.
    pub fn has_mirrors(&self) -> bool {
        !self.mirrors.lock().is_empty()
    }

    /// A mirror of which nothing is mapped any more: its address and length. It stays reserved until it is forgotten.
    pub fn unused_mirror(&self) -> Option<(u64, u64)> {
        let mut mirrors = self.mirrors.lock();
        for mirror in mirrors.iter_mut() {
            let Some((object, offset)) = &mirror.target else { continue };
            let mut used = false;
            self.regions(&mut |region| {
                used |= region.object_at(region.start).is_some_and(|(other, start)| {
                    **other == **object
                        && start < offset + mirror.length
                        && *offset < start + region.length()
                });
            });
            if !used {
                mirror.target = None;
                return Some((mirror.address, mirror.length));
            }
        }
        None
    }

    /// The first run of changed pages in `from..to` that has a mirror. From now on they count as unchanged, and Linux asks before it
    /// writes to them. May sleep.
    pub fn next_dirty(&self, from: u64, to: u64) -> Option<Dirty> {
        let mut at = from;
        while let Some(region) = self.next_region(at).filter(|region| region.start < to) {
            let range = region.start.max(at)..region.end.min(to);
            at = region.end;
            if !region.attributes.is_shared() {
                continue;
            }
            let mut from = range.start;
            while let Some(dirty) = self.next_dirty_in(&region, from..range.end) {
                match dirty {
                    Ok(dirty) => return Some(dirty),
                    // Without a mirror.
                    Err(next) => from = next,
                }
            }
        }
        None
    }

    /// The first run in a part of a region; `Err` tells where to go on if it has no mirror.
    fn next_dirty_in(&self, region: &Region, range: Range<u64>) -> Option<Result<Dirty, u64>> {
        let is_dirty = |entry: Entry| entry.flags().contains(Flags::DIRTY);
        let mut at = range.start;
        let first = loop {
            if at >= range.end {
                return None;
            }
            match self.tables.lock().scan(at..range.end, &mut Steps::of_section()) {
                Scan::Page(address, entry, FrameSize::Small) if is_dirty(entry) => break address,
                Scan::Page(address, _, size) => at = address + size.bytes(),
                Scan::Continue(next) => at = next,
            }
        };
        let (object, offset) = region.object_at(first)?;
        let mirror = self.mirrors.lock().iter().find_map(|mirror| mirror.find(object, offset));
        let Some((mirror, length)) = mirror else { return Some(Err(first + FRAME_SIZE)) };
        let last = range.end.min(first + length).min(first + RUN * FRAME_SIZE);
        let mut known = Collected::new();
        let mut stale = Stale::new(self.root);
        let mut end = first;
        'run: while end < last {
            let mut tables = self.tables.lock();
            for _ in 0..STEP {
                let cleaned = (end < last).then(|| tables.clean(end, &mut stale)).flatten();
                let Some(entry) = cleaned else { break 'run };
                if entry.flags().contains(Flags::EXPOSED) {
                    known.extend(end..end + FRAME_SIZE);
                }
                end += FRAME_SIZE;
            }
        }
        stale.settle();
        if let Some(range) = known.finish() {
            self.revoke.revoke(range);
        }
        match end - first {
            0 => Some(Err(first)),
            length => Some(Ok(Dirty { start: first, length, mirror })),
        }
    }
}
