// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mirrors: where the shadow maps the files and segments whose pages the program shares, and which
//! of these pages the program has changed. The personality makes the mappings themselves.

use super::revoke::Collected;
use super::{AddressSpace, MapError, Region};
use crate::arch::paging::{Scan, Steps};
use crate::arch::tlb::Stale;
use crate::mm::{heap, object::Object};
use alloc::sync::Arc;
use core::ops::Range;
use crtos_abi::UserAddr;
use crtos_abi::channel::{MIRRORS_END, MIRRORS_START};
use crtos_channel::operation::Identity;
use crtos_vm::{Entry, FRAME_SIZE, Flags, FrameSize};

/// What a mirror shows.
#[derive(Clone, Debug)]
pub struct Target {
    /// The object of the file or segment.
    pub object: Arc<Object>,
    /// The offset at the mirror's address.
    pub offset: u64,
    /// The shadow may write there.
    pub writable: bool,
    /// It stands for one attachment of a segment: there are as many as the program has.
    pub attachment: bool,
    /// The file, which Linux keeps: as long as the mirror is there it is no other one, and its
    /// pages can be read when they are touched.
    pub kept: Identity,
}

impl Target {
    /// A file whose pages are Linux's: nothing is written back.
    pub fn of_linux(object: Arc<Object>, offset: u64, kept: Identity) -> Self {
        Self { object, offset, writable: false, attachment: false, kept }
    }
}

/// A part of a file, or a segment, that the shadow maps.
#[derive(Clone, Debug)]
pub struct Mirror {
    address: UserAddr,
    length: u64,
    /// None while it is made.
    target: Option<Target>,
    /// What it is for is mapped.
    in_use: bool,
}

impl Mirror {
    /// Where `offset` of `object` can be written back, and how many bytes from there.
    fn find(&self, object: &Object, offset: u64) -> Option<(UserAddr, u64)> {
        let target = self.target.as_ref().filter(|target| target.writable)?;
        let inside = offset.checked_sub(target.offset).filter(|&inside| inside < self.length)?;
        (*target.object == *object).then_some((self.address + inside, self.length - inside))
    }

    /// The part of `object` that it shows, if `offset` is in it.
    fn shown(&self, object: &Object, offset: u64) -> Option<Range<u64>> {
        let target = self.target.as_ref().filter(|target| *target.object == *object)?;
        let part = target.offset..target.offset + self.length;
        part.contains(&offset).then_some(part)
    }

    /// Whether it stands for an attachment of `object`.
    fn attaches(&self, object: &Object) -> bool {
        self.target.as_ref().is_some_and(|target| target.attachment && *target.object == *object)
    }
}

/// A run of pages that the program has changed.
pub struct Dirty {
    /// First address.
    pub start: UserAddr,
    /// Bytes.
    pub length: u64,
    /// Where the shadow has them.
    pub mirror: UserAddr,
}

/// Most pages of a run.
const RUN: u64 = 32;
/// Pages of it that are looked at with interrupts off.
const STEP: u64 = 8;

impl AddressSpace {
    /// Addresses for a mirror of `length` bytes. To be followed by `set_mirror` and `use_mirror`,
    /// or by `forget_mirror`. No two mirrors touch: Linux would make one mapping of those that show
    /// parts of a file which follow each other.
    pub fn reserve_mirror(&self, length: u64) -> Result<UserAddr, MapError> {
        let mut mirrors = self.mirrors.lock();
        let mut address = UserAddr::new(MIRRORS_START);
        // They are sorted.
        let mut index = 0;
        for mirror in mirrors.iter() {
            if mirror.address.get()
                >= address.get().saturating_add(length).saturating_add(FRAME_SIZE)
            {
                break;
            }
            address = mirror.address + mirror.length + FRAME_SIZE;
            index += 1;
        }
        if MIRRORS_END.saturating_sub(address.get()) < length {
            return Err(MapError::NoMemory);
        }
        if !heap::makes_room(&mut mirrors, 1) {
            return Err(MapError::NoMemory);
        }
        mirrors.insert(index, Mirror { address, length, target: None, in_use: false });
        Ok(address)
    }

    /// Notes what the mirror at `address` shows, which is to be mapped.
    pub fn set_mirror(&self, address: UserAddr, target: Target) {
        let mut mirrors = self.mirrors.lock();
        if let Some(mirror) = mirrors.iter_mut().find(|mirror| mirror.address == address) {
            mirror.target = Some(target);
        }
    }

    /// What the mirror at `address` is for is mapped: when that goes, it is not needed any more.
    pub fn use_mirror(&self, address: UserAddr) {
        let mut mirrors = self.mirrors.lock();
        if let Some(mirror) = mirrors.iter_mut().find(|mirror| mirror.address == address) {
            mirror.in_use = true;
        }
    }

    /// A mirror by which `offset` of `object` can be read: its address, which file, which part.
    pub(super) fn mirror_of(
        &self,
        object: &Object,
        offset: u64,
    ) -> Option<(UserAddr, Identity, Range<u64>)> {
        let mirrors = self.mirrors.lock();
        mirrors.iter().find_map(|mirror| {
            let kept = mirror.target.as_ref()?.kept;
            Some((mirror.address, kept, mirror.shown(object, offset)?))
        })
    }

    /// Where the shadow has `offset` of `object`, and how many bytes from there.
    pub fn in_mirror(&self, object: &Object, offset: u64) -> Option<(UserAddr, u64)> {
        let (mirror, _, part) = self.mirror_of(object, offset)?;
        Some((mirror + (offset - part.start), part.end - offset))
    }

    /// What shows `offset` of `object` for the longest part: that, where the shadow has it, and how
    /// many bytes from there.
    pub fn target_at(&self, object: &Object, offset: u64) -> Option<(Target, UserAddr, u64)> {
        let mirrors = self.mirrors.lock();
        let shown = mirrors.iter().filter_map(|mirror| {
            let part = mirror.shown(object, offset)?;
            let at = mirror.address + (offset - part.start);
            Some((mirror.target.as_ref()?, at, part.end - offset))
        });
        shown
            .max_by_key(|(.., length)| *length)
            .map(|(target, at, length)| (target.clone(), at, length))
    }

    /// Whether pages of files are read when they are touched.
    pub fn reads_on_demand(&self) -> bool {
        let is_read = |target: &Target| target.object.is_on_demand();
        self.mirrors.lock().iter().any(|mirror| mirror.target.as_ref().is_some_and(is_read))
    }

    /// Forgets the mirror at `address`, which the shadow has unmapped.
    pub fn forget_mirror(&self, address: UserAddr) {
        self.mirrors.lock().retain(|mirror| mirror.address != address);
    }

    /// Whether there are any.
    pub fn has_mirrors(&self) -> bool {
        !self.mirrors.lock().is_empty()
    }

    /// A mirror that is not needed any more, because nothing of it is mapped or the program has
    /// fewer attachments: its address and length. It stays reserved until it is forgotten.
    pub fn unused_mirror(&self) -> Option<(UserAddr, u64)> {
        let mut mirrors = self.mirrors.lock();
        let unused = mirrors.iter().position(|mirror| match &mirror.target {
            None => false,
            Some(_) if !mirror.in_use => false,
            Some(Target { object, attachment: true, .. }) => {
                let count = mirrors.iter().filter(|other| other.attaches(object)).count();
                count > self.attachments(object)
            }
            Some(Target { object, offset, .. }) => {
                !self.shows(object, *offset..offset + mirror.length)
            }
        })?;
        let mirror = &mut mirrors[unused];
        mirror.target = None;
        Some((mirror.address, mirror.length))
    }

    /// Whether a part of an object is mapped.
    fn shows(&self, object: &Object, part: Range<u64>) -> bool {
        let mut shown = false;
        self.regions(&mut |region| {
            shown |= region.object_at(region.start).is_some_and(|(other, start)| {
                ***other == *object && start < part.end && part.start < start + region.length()
            });
        });
        shown
    }

    /// How often an object is attached: parts of it that lie as in one piece are one.
    fn attachments(&self, object: &Object) -> usize {
        let (mut count, mut last) = (0, None);
        self.regions(&mut |region| {
            if let Some((other, offset)) = region.object_at(region.start)
                && ***other == *object
            {
                let start = Some(region.start.get().wrapping_sub(offset));
                count += usize::from(start != last);
                last = start;
            }
        });
        count
    }

    /// Whether an object is that of a segment which the program has attached.
    pub fn is_attached(&self, object: &Object) -> bool {
        self.mirrors.lock().iter().any(|mirror| mirror.attaches(object))
    }

    /// The first run of changed pages in `from..to` that has a mirror. From now on they count as
    /// unchanged, and Linux asks before it writes to them. May sleep.
    pub fn next_dirty(&self, from: UserAddr, to: UserAddr) -> Option<Dirty> {
        let mut at = from;
        while let Some(region) = self.next_region(at).filter(|region| region.start < to) {
            let range = region.start.max(at)..region.end.min(to);
            at = region.end;
            let is_linuxs =
                region.object_at(region.start).is_some_and(|(object, _)| object.is_linuxs());
            if !region.attributes.is_shared() || is_linuxs {
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
    fn next_dirty_in(
        &self,
        region: &Region,
        range: Range<UserAddr>,
    ) -> Option<Result<Dirty, UserAddr>> {
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
