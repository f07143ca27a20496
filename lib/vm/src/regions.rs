// SPDX-License-Identifier: MIT OR Apache-2.0
//! The regions of an address space: which addresses a program may use, with which rights, for what.
//!
//! Lengths and offsets are in bytes. Regions never overlap.
//! All that [`Regions`] does takes logarithmic time, so that it can be done with interrupts off.
//! What concerns any number of regions is a sequence of such steps ([`crate::changes`]).

use crate::{FRAME_SIZE, Kind, MapError, Protection};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;
use crtos_abi::UserAddr;

/// The most regions of an address space (Linux's default of vm.max_map_count).
pub const MAX_REGIONS: usize = 65530;

/// The object behind the addresses of a region that has no memory of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backing<O> {
    /// The object that has the pages.
    pub object: O,
    /// The offset in the object at which the region starts; a multiple of the page size.
    pub offset: u64,
    /// Writes go to the object; otherwise each written page gets a copy.
    pub shared: bool,
    /// The region may be made writable.
    pub may_write: bool,
}

/// What a forked process gets of a region, if not its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OnFork {
    /// Nothing is mapped there (MADV_DONTFORK).
    pub omitted: bool,
    /// The memory there is zero (MADV_WIPEONFORK).
    pub cleared: bool,
}

/// The attributes of all addresses of a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes<O> {
    /// The program's rights.
    pub protection: Protection,
    /// Its use.
    pub kind: Kind,
    /// The memory is locked (mlock).
    pub locked: bool,
    /// What a forked process gets.
    pub on_fork: OnFork,
    /// The object behind it; `None` for memory that is zero at first.
    pub backing: Option<Backing<O>>,
}

impl<O> Attributes<O> {
    /// Makes the attributes of memory of its own.
    pub const fn plain(protection: Protection, kind: Kind) -> Self {
        let on_fork = OnFork { omitted: false, cleared: false };
        Self { protection, kind, locked: false, on_fork, backing: None }
    }

    /// Says whether writes go to an object.
    pub fn is_shared(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.shared)
    }

    /// Says whether RLIMIT_DATA counts the region.
    fn is_data(&self) -> bool {
        self.protection.contains(Protection::WRITE) && !self.is_shared() && self.kind != Kind::Stack
    }

    /// Says whether a region of `length` bytes with these attributes is one with a neighbour that
    /// has `next`.
    fn continues(&self, next: &Self, length: u64) -> bool
    where
        O: PartialEq,
    {
        let offsets_meet = match (&self.backing, &next.backing) {
            (None, None) => true,
            (Some(a), Some(b)) => {
                a.offset.wrapping_add(length) == b.offset
                    && (a.shared, a.may_write) == (b.shared, b.may_write)
                    && a.object == b.object
            }
            _ => false,
        };
        offsets_meet
            && (self.protection, self.kind, self.locked, self.on_fork)
                == (next.protection, next.kind, next.locked, next.on_fork)
    }
}

impl<O: Clone> Attributes<O> {
    /// Returns the attributes of the part that begins `distance` bytes behind the start.
    pub fn from(&self, distance: u64) -> Self {
        let mut rest = self.clone();
        if let Some(backing) = &mut rest.backing {
            backing.offset = backing.offset.wrapping_add(distance);
        }
        rest
    }
}

/// One region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Region<O> {
    /// First address.
    pub start: UserAddr,
    /// One past the last address.
    pub end: UserAddr,
    /// Its attributes.
    pub attributes: Attributes<O>,
}

impl<O> Region<O> {
    /// Returns the object at `address`, which lies in the region, and the offset in the object.
    pub fn object_at(&self, address: UserAddr) -> Option<(&O, u64)> {
        let backing = self.attributes.backing.as_ref()?;
        Some((&backing.object, backing.offset.wrapping_add(address - self.start)))
    }

    /// Returns the program's rights.
    pub fn protection(&self) -> Protection {
        self.attributes.protection
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Body<O> {
    end: UserAddr,
    attributes: Attributes<O>,
}

/// The bytes that are mapped, as resource limits count them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// All (RLIMIT_AS).
    pub mapped: u64,
    /// Writable and private, without stacks (RLIMIT_DATA).
    pub data: u64,
    /// Locked (RLIMIT_MEMLOCK).
    pub locked: u64,
}

impl Usage {
    /// Adds or subtracts `bytes` of a region.
    fn count<O>(&mut self, attributes: &Attributes<O>, bytes: u64, add: bool) {
        let change = |sum: &mut u64, counts: bool| {
            let bytes = if counts { bytes } else { 0 };
            *sum = if add { *sum + bytes } else { *sum - bytes };
        };
        change(&mut self.mapped, true);
        change(&mut self.data, attributes.is_data());
        change(&mut self.locked, attributes.locked);
    }
}

/// All regions of an address space. `O` names an object behind them.
#[derive(Debug)]
pub struct Regions<O> {
    map: BTreeMap<UserAddr, Body<O>>,
    /// Ranges of addresses that a program may use, ascending.
    allowed: Vec<Range<UserAddr>>,
    usage: Usage,
}

/// What a look for free room has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// There is room at this address.
    At(UserAddr),
    /// There is none that ends above this address.
    Below(UserAddr),
    /// There is none.
    None,
}

impl<O: Clone + PartialEq> Regions<O> {
    /// Makes an address space without regions. Addresses in `allowed` (page-aligned, ascending,
    /// disjoint) may be used.
    pub fn new(allowed: &[Range<UserAddr>]) -> Self {
        Self { map: BTreeMap::new(), allowed: allowed.to_vec(), usage: Usage::default() }
    }

    /// Returns how much is mapped.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the region in which `address` lies.
    pub fn find(&self, address: UserAddr) -> Option<Region<O>> {
        self.body_at(address).map(Self::region)
    }

    /// Returns the first region that ends behind `address`.
    pub fn find_from(&self, address: UserAddr) -> Option<Region<O>> {
        self.body_from(address).map(Self::region)
    }

    /// Says whether all of `range` lies in one region and has the attributes that it has in
    /// `before`, which was a region once and contains `range`.
    pub fn is_as_before(&self, before: &Region<O>, range: &Range<UserAddr>) -> bool {
        self.body_at(range.start).is_some_and(|(&start, body)| {
            let (now, then) = (&body.attributes, &before.attributes);
            range.end <= body.end
                && if start <= before.start {
                    now.continues(then, before.start - start)
                } else {
                    then.continues(now, start - before.start)
                }
        })
    }

    /// Iterates over the regions in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Region<O>> + '_ {
        self.map.iter().map(Self::region)
    }

    /// Says whether a program may use `start..start + length` at all. Both may be any number.
    pub fn is_allowed(&self, start: UserAddr, length: u64) -> bool {
        start.checked_add(length).is_some_and(|end| {
            self.allowed.iter().any(|range| range.start <= start && end <= range.end)
        })
    }

    /// Says whether nothing is mapped in `start..start + length`.
    pub fn is_free(&self, start: UserAddr, length: u64) -> bool {
        self.body_from(start).is_none_or(|(&next, _)| next >= start.saturating_add(length))
    }

    /// Looks for `length` bytes, aligned to `align` (a power of two, at least a page), that end at
    /// `end` or as far below as their alignment demands.
    pub fn room_below(&self, end: UserAddr, length: u64, align: u64) -> Room {
        let Some(allowed) = self.allowed.iter().rfind(|range| range.start < end) else {
            return Room::None;
        };
        let start = allowed.end.min(end).checked_sub(length).map(|start| start.align_down(align));
        let Some(start) = start.filter(|&start| start >= allowed.start) else {
            return Room::Below(allowed.start);
        };
        // Regions do not overlap, so the last one that begins below the end of the candidate is the
        // first that can be in its way.
        match self.map.range(..start + length).next_back() {
            Some((&begin, body)) if body.end > start => Room::Below(begin),
            _ => Room::At(start),
        }
    }

    /// Maps a free range, which is page-aligned. It may be like its neighbours
    /// ([`merge`](Self::merge)).
    pub fn insert(
        &mut self,
        start: UserAddr,
        length: u64,
        attributes: Attributes<O>,
    ) -> Result<(), MapError> {
        check(start, length)?;
        if !self.is_allowed(start, length) {
            return Err(MapError::Denied);
        }
        if !self.is_free(start, length) {
            return Err(MapError::Exists);
        }
        self.room(1)?;
        self.usage.count(&attributes, length, true);
        self.map.insert(start, Body { end: start + length, attributes });
        Ok(())
    }

    /// Unmaps the first region that begins in `range`, all of it, and returns it.
    pub fn remove(&mut self, range: &Range<UserAddr>) -> Option<Region<O>> {
        let (&start, _) = self.map.range(range.clone()).next()?;
        let Body { end, attributes } = self.map.remove(&start)?;
        self.usage.count(&attributes, end - start, false);
        Some(Region { start, end, attributes })
    }

    /// Changes the attributes of the region that begins at `start` and returns its end. Afterwards
    /// it may be like its neighbours.
    pub fn change(
        &mut self,
        start: UserAddr,
        change: impl FnOnce(&mut Attributes<O>),
    ) -> Option<UserAddr> {
        let body = self.map.get_mut(&start)?;
        let length = body.end - start;
        self.usage.count(&body.attributes, length, false);
        change(&mut body.attributes);
        self.usage.count(&body.attributes, length, true);
        Some(body.end)
    }

    /// Says whether there may be so many regions more: [`MapError::NoMemory`] if not.
    pub fn room(&self, more: usize) -> Result<(), MapError> {
        if self.map.len() + more > MAX_REGIONS { Err(MapError::NoMemory) } else { Ok(()) }
    }

    /// Makes `at` a boundary if it lies inside a region.
    pub fn split(&mut self, at: UserAddr) {
        if let Some((&start, body)) = self.map.range_mut(..at).next_back()
            && at < body.end
        {
            let rest = Body { end: body.end, attributes: body.attributes.from(at - start) };
            body.end = at;
            self.map.insert(at, rest);
        }
    }

    /// Joins the regions that meet at `at` if they are alike.
    pub fn merge(&mut self, at: UserAddr) {
        let mut near = self.map.range_mut(..=at);
        let Some((&last, after)) = near.next_back() else { return };
        if last != at {
            return;
        }
        let Some((&start, before)) = near.next_back() else { return };
        if before.end == at && before.attributes.continues(&after.attributes, at - start) {
            before.end = after.end;
            self.map.remove(&at);
        }
    }

    fn region((&start, body): (&UserAddr, &Body<O>)) -> Region<O> {
        Region { start, end: body.end, attributes: body.attributes.clone() }
    }

    /// The region in which `address` lies.
    fn body_at(&self, address: UserAddr) -> Option<(&UserAddr, &Body<O>)> {
        self.map.range(..=address).next_back().filter(|(_, body)| address < body.end)
    }

    /// The first region that ends behind `address`.
    fn body_from(&self, address: UserAddr) -> Option<(&UserAddr, &Body<O>)> {
        self.body_at(address).or_else(|| self.map.range(address..).next())
    }
}

/// Says whether a range can be one: not empty, and made of whole pages.
pub(crate) fn check(start: UserAddr, length: u64) -> Result<(), MapError> {
    if length == 0 || !(start.get() | length).is_multiple_of(FRAME_SIZE) {
        Err(MapError::Invalid)
    } else {
        Ok(())
    }
}
