// SPDX-License-Identifier: MIT OR Apache-2.0
//! The regions of an address space: which addresses a program may use, with which rights, for what.
//!
//! Lengths and offsets are in bytes. Regions never overlap.
//! Neighbours that are alike are one region, as `/proc/self/maps` shows them under Linux.
//! Free room is found from the top downwards. Searches take logarithmic time, those for room with
//! the exception that `gaps` tells.

use crate::{BLOCK_SIZE, FRAME_SIZE, Kind, MapError, Protection, gaps::Gaps};
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
    /// The region may be made executable.
    pub may_execute: bool,
}

impl<O> Backing<O> {
    /// The object's own pages, from an offset on: whoever has them sees each other's stores.
    pub fn shared(object: O, offset: u64, may_write: bool) -> Self {
        Self { object, offset, shared: true, may_write, may_execute: true }
    }

    /// What the object has from an offset on: each page that is written gets a copy.
    pub fn private(object: O, offset: u64) -> Self {
        Self { object, offset, shared: false, may_write: true, may_execute: true }
    }

    /// Says whether the region may get these rights.
    fn allows(&self, protection: Protection) -> bool {
        (self.may_write || !protection.contains(Protection::WRITE))
            && (self.may_execute || !protection.contains(Protection::EXECUTE))
    }
}

/// Whether memory is locked (mlock).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lock {
    /// It is not.
    #[default]
    None,
    /// It is from when it is touched (MLOCK_ONFAULT).
    OnFault,
    /// It is, and present.
    Present,
}

impl Lock {
    /// Says whether it is locked at all.
    pub fn is_locked(self) -> bool {
        self != Self::None
    }
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
    /// Whether the memory is locked.
    pub lock: Lock,
    /// What a forked process gets.
    pub on_fork: OnFork,
    /// The object behind it; `None` for memory that is zero at first.
    pub backing: Option<Backing<O>>,
}

impl<O> Attributes<O> {
    /// Makes the attributes of memory of its own.
    pub const fn plain(protection: Protection, kind: Kind) -> Self {
        let on_fork = OnFork { omitted: false, cleared: false };
        Self { protection, kind, lock: Lock::None, on_fork, backing: None }
    }

    /// Says whether writes go to an object.
    pub fn is_shared(&self) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.shared)
    }

    /// Says whether the program may give itself the right to write.
    pub fn may_write(&self) -> bool {
        self.backing.as_ref().is_none_or(|backing| backing.may_write)
    }

    /// Says whether RLIMIT_DATA counts the region.
    pub fn is_data(&self) -> bool {
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
                    && (a.shared, a.may_write, a.may_execute)
                        == (b.shared, b.may_write, b.may_execute)
                    && a.object == b.object
            }
            _ => false,
        };
        offsets_meet
            && (self.protection, self.kind, self.lock, self.on_fork)
                == (next.protection, next.kind, next.lock, next.on_fork)
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

    /// Says whether it has room for a block of 2 MiB.
    pub fn has_block(&self) -> bool {
        let block = (self.start + (BLOCK_SIZE - 1)).align_down(BLOCK_SIZE);
        self.end >= block + BLOCK_SIZE
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
    /// Locked, without stacks (RLIMIT_MEMLOCK).
    pub locked: u64,
    /// Stacks that the kernel made.
    pub stacks: u64,
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
        change(&mut self.locked, attributes.lock.is_locked() && attributes.kind != Kind::Stack);
        change(&mut self.stacks, attributes.kind == Kind::Stack);
    }

    /// Changes the attributes of a region of `bytes`, which counts as what it is then.
    fn recount<O>(
        &mut self,
        attributes: &mut Attributes<O>,
        bytes: u64,
        change: impl FnOnce(&mut Attributes<O>),
    ) {
        self.count(attributes, bytes, false);
        change(attributes);
        self.count(attributes, bytes, true);
    }
}

/// All regions of an address space. `O` names an object behind them.
#[derive(Debug)]
pub struct Regions<O> {
    map: BTreeMap<UserAddr, Body<O>>,
    /// Ranges of addresses that a program may use, ascending.
    allowed: Vec<Range<UserAddr>>,
    /// What is left of these.
    gaps: Gaps,
    usage: Usage,
}

impl<O: Clone + PartialEq> Regions<O> {
    /// Makes an address space without regions. Addresses in `allowed` (page-aligned, ascending,
    /// disjoint) may be used.
    pub fn new(allowed: &[Range<UserAddr>]) -> Self {
        let mut gaps = Gaps::new();
        allowed.iter().for_each(|range| gaps.add(range.clone()));
        Self { map: BTreeMap::new(), allowed: allowed.to_vec(), gaps, usage: Usage::default() }
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

    /// Says whether all of `start..end` is mapped.
    pub fn is_mapped(&self, start: UserAddr, end: UserAddr) -> bool {
        let mut at = start;
        while at < end {
            match self.body_at(at) {
                Some((_, body)) => at = body.end,
                None => return false,
            }
        }
        true
    }

    /// Returns the highest free address for `length` bytes below `top`, aligned to `align` (a power
    /// of two, at least a page).
    pub fn find_free(&self, length: u64, align: u64, top: UserAddr) -> Option<UserAddr> {
        self.gaps.find(length, align, top)
    }

    /// The gap around `at`, which may be used and is not mapped.
    fn gap_around(&self, at: UserAddr) -> Range<UserAddr> {
        let allowed = self.allowed.iter().find(|allowed| allowed.contains(&at));
        let Range { start, end } = allowed.cloned().unwrap_or(at..at);
        let before = self.map.range(..at).next_back().map_or(start, |(_, body)| body.end);
        let behind = self.map.range(at..).next().map_or(end, |(&begin, _)| begin);
        before.max(start)..behind.min(end)
    }

    /// Maps a free range, which is page-aligned.
    pub fn insert(
        &mut self,
        start: UserAddr,
        length: u64,
        attributes: Attributes<O>,
    ) -> Result<(), MapError> {
        Self::check(start, length)?;
        if !self.is_allowed(start, length) {
            return Err(MapError::Denied);
        }
        if !self.is_free(start, length) {
            return Err(MapError::Exists);
        }
        self.room(1)?;
        self.usage.count(&attributes, length, true);
        let gap = self.gap_around(start);
        self.gaps.remove(gap.clone());
        self.gaps.add(gap.start..start);
        self.gaps.add(start + length..gap.end);
        self.map.insert(start, Body { end: start + length, attributes });
        self.merge(start);
        self.merge(start + length);
        Ok(())
    }

    /// Whether a region begins before the range and ends behind it.
    pub fn is_within_one(&self, range: &Range<UserAddr>) -> bool {
        let around = self.body_at(range.start);
        around.is_some_and(|(&begin, body)| begin < range.start && range.end < body.end)
    }

    /// Unmaps what is in the range, which may have holes. [`MapError::NoMemory`] only if the range
    /// makes two regions of one.
    pub fn remove(&mut self, start: UserAddr, length: u64) -> Result<(), MapError> {
        Self::check(start, length)?;
        let end = start.checked_add(length).ok_or(MapError::Invalid)?;
        if self.is_within_one(&(start..end)) {
            self.room(1)?;
        }
        self.split(start);
        self.split(end);
        while let Some((&at, _)) = self.map.range(start..end).next() {
            if let Some(Body { end, attributes }) = self.map.remove(&at) {
                self.usage.count(&attributes, end - at, false);
                let gap = self.gap_around(at);
                self.gaps.remove(gap.start..at);
                self.gaps.remove(end..gap.end);
                self.gaps.add(gap);
            }
        }
        Ok(())
    }

    /// Changes the rights of a range without holes; [`MapError::Access`] if a part may not get
    /// them.
    pub fn protect(
        &mut self,
        start: UserAddr,
        length: u64,
        protection: Protection,
    ) -> Result<(), MapError> {
        self.change(
            start,
            length,
            |attributes| match &attributes.backing {
                Some(backing) if !backing.allows(protection) => Err(MapError::Access),
                _ => Ok(()),
            },
            |attributes| attributes.protection = protection,
        )
    }

    /// Locks a range without holes, or unlocks it.
    pub fn lock(&mut self, start: UserAddr, length: u64, lock: Lock) -> Result<(), MapError> {
        self.change(start, length, |_| Ok(()), |attributes| attributes.lock = lock)
    }

    /// Locks all that is mapped, or unlocks it.
    pub fn lock_all(&mut self, lock: Lock) {
        let mut at = UserAddr::NULL;
        while let Some((&start, body)) = self.map.range_mut(at..).next() {
            at = body.end;
            let change = |attributes: &mut Attributes<O>| attributes.lock = lock;
            self.usage.recount(&mut body.attributes, at - start, change);
            self.merge(start);
        }
    }

    /// Changes what a forked process gets of a range without holes; [`MapError::Invalid`] if an
    /// object were to be cleared.
    pub fn set_on_fork(
        &mut self,
        start: UserAddr,
        length: u64,
        set: impl Fn(&mut OnFork),
    ) -> Result<(), MapError> {
        self.change(
            start,
            length,
            |attributes| {
                let mut on_fork = attributes.on_fork;
                set(&mut on_fork);
                let possible = !on_fork.cleared || attributes.backing.is_none();
                if possible { Ok(()) } else { Err(MapError::Invalid) }
            },
            |attributes| set(&mut attributes.on_fork),
        )
    }

    /// Changes the attributes of a range without holes if `check` accepts them all.
    fn change(
        &mut self,
        start: UserAddr,
        length: u64,
        check: impl Fn(&Attributes<O>) -> Result<(), MapError>,
        change: impl Fn(&mut Attributes<O>),
    ) -> Result<(), MapError> {
        Self::check(start, length)?;
        let end = start.checked_add(length).ok_or(MapError::NoMemory)?;
        if !self.is_mapped(start, end) {
            return Err(MapError::NoMemory);
        }
        self.room([start, end].into_iter().filter(|&at| self.is_inside(at)).count())?;
        self.split(start);
        self.split(end);
        // Even when the check fails, what was split is joined again below.
        let checked = self.map.range(start..end).try_for_each(|(_, body)| check(&body.attributes));
        if checked.is_ok() {
            for (&start, body) in self.map.range_mut(start..end) {
                self.usage.recount(&mut body.attributes, body.end - start, &change);
            }
        }
        let mut at = end;
        loop {
            self.merge(at);
            if at <= start {
                break;
            }
            // Towards the start: the beginning of the region that ends at or spans `at`.
            at = self.map.range(..at).next_back().map_or(start, |(&begin, _)| begin);
        }
        checked
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

    fn check(start: UserAddr, length: u64) -> Result<(), MapError> {
        if length == 0 || !(start.get() | length).is_multiple_of(FRAME_SIZE) {
            Err(MapError::Invalid)
        } else {
            Ok(())
        }
    }

    fn room(&self, more: usize) -> Result<(), MapError> {
        if self.map.len() + more > MAX_REGIONS { Err(MapError::NoMemory) } else { Ok(()) }
    }

    /// Says whether `at` lies inside a region, and not at its start.
    fn is_inside(&self, at: UserAddr) -> bool {
        self.body_at(at).is_some_and(|(&begin, _)| begin < at)
    }

    /// Makes `at` a boundary if it lies inside a region.
    fn split(&mut self, at: UserAddr) {
        if let Some((&start, body)) = self.map.range_mut(..at).next_back()
            && at < body.end
        {
            let rest = Body { end: body.end, attributes: body.attributes.from(at - start) };
            body.end = at;
            self.map.insert(at, rest);
        }
    }

    /// Joins the regions that meet at `at` if they are alike.
    fn merge(&mut self, at: UserAddr) {
        let Some(after) = self.map.get(&at) else { return };
        let Some((&start, before)) = self.map.range(..at).next_back() else { return };
        if before.end != at || !before.attributes.continues(&after.attributes, at - start) {
            return;
        }
        let end = after.end;
        self.map.remove(&at);
        if let Some(before) = self.map.get_mut(&start) {
            before.end = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: u64 = 64;
    const HOLE: Range<u64> = 40..44;

    /// The address of the page with this number.
    fn page(number: u64) -> UserAddr {
        UserAddr::new(number * FRAME_SIZE)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64, u8, u8),
        Remove(u64, u64),
        Protect(u64, u64, u8),
        Lock(u64, u64, Lock),
        LockAll(Lock),
        Clear(u64, u64, bool),
        Find(u64, u64, u64),
    }

    fn lock() -> impl Strategy<Value = Lock> {
        prop_oneof![Just(Lock::None), Just(Lock::OnFault), Just(Lock::Present)]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..PAGES, 1u64..12, 0u8..8, 0u8..6).prop_map(|(s, l, p, k)| Step::Insert(s, l, p, k)),
            (0..PAGES, 1u64..12).prop_map(|(s, l)| Step::Remove(s, l)),
            (0..PAGES, 1u64..12, 0u8..8).prop_map(|(s, l, p)| Step::Protect(s, l, p)),
            (0..PAGES, 1u64..12, lock()).prop_map(|(s, l, how)| Step::Lock(s, l, how)),
            lock().prop_map(Step::LockAll),
            (0..PAGES, 1u64..12, any::<bool>()).prop_map(|(s, l, on)| Step::Clear(s, l, on)),
            (1u64..12, 0u64..3, 0..PAGES + 1).prop_map(|(l, a, t)| Step::Find(l, a, t)),
        ]
    }

    /// Plain memory, the heap, an object (private, shared, shared and never writable, shared and
    /// never executable), or a stack. Objects are mapped at the offsets of their addresses.
    fn attributes(protection: u8, which: u8, page: u64) -> Attributes<u8> {
        let protection = Protection::from_bits_truncate(protection);
        let kind = match which {
            1 => Kind::Heap,
            6 => Kind::Stack,
            _ => Kind::Anonymous,
        };
        let backing = (2..6).contains(&which).then_some(Backing {
            object: which,
            offset: page * FRAME_SIZE,
            shared: which > 2,
            may_write: which != 4,
            may_execute: which != 5,
        });
        Attributes { backing, ..Attributes::plain(protection, kind) }
    }

    type Model = Vec<Option<Attributes<u8>>>;

    /// The regions that the array of pages means.
    fn runs(model: &Model) -> Vec<Region<u8>> {
        let mut regions: Vec<Region<u8>> = Vec::new();
        for (page, entry) in model.iter().enumerate() {
            let Some(attributes) = entry.clone() else { continue };
            let start = self::page(page as u64);
            match regions.last_mut() {
                Some(last)
                    if last.end == start && last.attributes.from(last.length()) == attributes =>
                {
                    last.end += FRAME_SIZE
                }
                _ => regions.push(Region { start, end: start + FRAME_SIZE, attributes }),
            }
        }
        regions
    }

    /// Where no further region has room, only what makes one more is refused.
    #[test]
    fn as_many_regions_as_can_be() {
        let allowed = page(0)..page(3 * MAX_REGIONS as u64);
        let mut regions = Regions::<u8>::new(&[allowed]);
        let at = |index: usize| page(3 * index as u64);
        for index in 0..MAX_REGIONS {
            // Regions with nothing between them differ in their rights.
            let plain = attributes(1 + index as u8 % 2, 0, 0);
            assert_eq!(regions.insert(at(index), 3 * FRAME_SIZE, plain), Ok(()));
        }
        let none = Err(MapError::NoMemory);
        let read_write = Protection::from_bits_truncate(3);
        assert_eq!(regions.remove(at(1) + FRAME_SIZE, FRAME_SIZE), none);
        assert_eq!(regions.protect(at(1), FRAME_SIZE, read_write), none);
        assert_eq!(regions.protect(at(1), 3 * FRAME_SIZE, read_write), Ok(()));
        assert_eq!(regions.lock(at(2), 3 * FRAME_SIZE, Lock::Present), Ok(()));
        // From the middle of one to the middle of another.
        assert_eq!(regions.remove(at(3) + FRAME_SIZE, 3 * FRAME_SIZE), Ok(()));
        assert_eq!(regions.remove(at(5), 3 * FRAME_SIZE), Ok(()));
        assert_eq!(regions.remove(at(1) + FRAME_SIZE, FRAME_SIZE), Ok(()));
        assert_eq!(regions.iter().count(), MAX_REGIONS);
    }

    /// Room is found as soon among many regions, also where there is much that does not fit.
    #[test]
    fn room_among_many_regions() {
        const REGIONS: u64 = 20_000;
        let top = page(4 * REGIONS);
        let mut regions = Regions::<u8>::new(&[page(0)..top]);
        for index in 0..REGIONS {
            let at = regions.find_free(2 * FRAME_SIZE, FRAME_SIZE, top);
            assert_eq!(at, Some(page(4 * REGIONS - 2 * (index + 1))));
            let plain = attributes(1 + index as u8 % 2, 0, 0);
            assert_eq!(regions.insert(at.unwrap(), 2 * FRAME_SIZE, plain), Ok(()));
        }
        for index in 0..REGIONS {
            assert_eq!(regions.remove(page(4 * REGIONS - 2 * index - 1), FRAME_SIZE), Ok(()));
            let room = regions.find_free(2 * FRAME_SIZE, FRAME_SIZE, top);
            assert_eq!(room, Some(page(2 * REGIONS - 2)));
        }
    }

    proptest! {
        #[test]
        fn behaves_like_an_array_of_pages(steps in proptest::collection::vec(step(), 0..120)) {
            let allowed = [page(0)..page(HOLE.start), page(HOLE.end)..page(PAGES)];
            let mut regions = Regions::new(&allowed);
            let mut model: Model = vec![None; PAGES as usize];
            let usable = |s: u64, l: u64| s + l <= PAGES && (s + l <= HOLE.start || s >= HOLE.end);
            for step in steps {
                let before: Vec<_> = regions.iter().collect();
                let model_before = model.clone();
                match step {
                    Step::Insert(s, l, p, k) => {
                        let result = regions.insert(page(s), l * FRAME_SIZE, attributes(p, k, s));
                        if !usable(s, l) {
                            prop_assert_eq!(result, Err(MapError::Denied));
                        } else if (s..s + l).any(|page| model[page as usize].is_some()) {
                            prop_assert_eq!(result, Err(MapError::Exists));
                        } else {
                            prop_assert_eq!(result, Ok(()));
                            (s..s + l).for_each(|page| {
                                model[page as usize] = Some(attributes(p, k, page))
                            });
                        }
                    }
                    Step::Remove(s, l) => {
                        prop_assert_eq!(regions.remove(page(s), l * FRAME_SIZE), Ok(()));
                        (s..(s + l).min(PAGES)).for_each(|page| model[page as usize] = None);
                    }
                    Step::Protect(s, l, p) => {
                        let protection = Protection::from_bits_truncate(p);
                        let result = regions.protect(page(s), l * FRAME_SIZE, protection);
                        let whole =
                            s + l <= PAGES && (s..s + l).all(|page| model[page as usize].is_some());
                        let lacks = |b: &Backing<u8>| {
                            (protection.contains(Protection::WRITE) && !b.may_write)
                                || (protection.contains(Protection::EXECUTE) && !b.may_execute)
                        };
                        let denied = whole
                            && (s..s + l).any(|page| {
                                model[page as usize]
                                    .as_ref()
                                    .is_some_and(|a| a.backing.as_ref().is_some_and(lacks))
                            });
                        let expected = match (whole, denied) {
                            (false, _) => Err(MapError::NoMemory),
                            (_, true) => Err(MapError::Access),
                            _ => Ok(()),
                        };
                        prop_assert_eq!(result, expected);
                        if result.is_ok() {
                            (s..s + l).for_each(|page| {
                                if let Some(entry) = &mut model[page as usize] {
                                    entry.protection = protection
                                }
                            });
                        }
                    }
                    Step::Lock(s, l, how) => {
                        let whole =
                            s + l <= PAGES && (s..s + l).all(|page| model[page as usize].is_some());
                        prop_assert_eq!(regions.lock(page(s), l * FRAME_SIZE, how).is_ok(), whole);
                        if whole {
                            (s..s + l).for_each(|page| {
                                if let Some(entry) = &mut model[page as usize] {
                                    entry.lock = how
                                }
                            });
                        }
                    }
                    Step::LockAll(how) => {
                        regions.lock_all(how);
                        model.iter_mut().flatten().for_each(|entry| entry.lock = how);
                    }
                    Step::Clear(s, l, on) => {
                        let result = regions
                            .set_on_fork(page(s), l * FRAME_SIZE, |on_fork| on_fork.cleared = on);
                        let whole =
                            s + l <= PAGES && (s..s + l).all(|page| model[page as usize].is_some());
                        let objects = whole
                            && (s..s + l).any(|page| {
                                model[page as usize].as_ref().is_some_and(|a| a.backing.is_some())
                            });
                        let expected = match (whole, on && objects) {
                            (false, _) => Err(MapError::NoMemory),
                            (_, true) => Err(MapError::Invalid),
                            _ => Ok(()),
                        };
                        prop_assert_eq!(result, expected);
                        if result.is_ok() {
                            (s..s + l).for_each(|page| {
                                if let Some(entry) = &mut model[page as usize] {
                                    entry.on_fork.cleared = on
                                }
                            });
                        }
                    }
                    Step::Find(l, a, top) => {
                        let align = 1 << a;
                        let expected = (0..top).rev().find(|&s| {
                            s % align == 0
                                && s + l <= top
                                && usable(s, l)
                                && (s..s + l).all(|page| model[page as usize].is_none())
                        });
                        let found =
                            regions.find_free(l * FRAME_SIZE, align * FRAME_SIZE, page(top));
                        prop_assert_eq!(found, expected.map(page));
                    }
                }
                prop_assert_eq!(regions.iter().collect::<Vec<_>>(), runs(&model));
                let bytes = |counts: &dyn Fn(&Attributes<u8>) -> bool| {
                    model.iter().flatten().filter(|a| counts(a)).count() as u64 * FRAME_SIZE
                };
                let usage = Usage {
                    mapped: bytes(&|_| true),
                    data: bytes(&|a| {
                        a.protection.contains(Protection::WRITE)
                            && !a.is_shared()
                            && a.kind != Kind::Stack
                    }),
                    locked: bytes(&|a| a.lock.is_locked() && a.kind != Kind::Stack),
                    stacks: bytes(&|a| a.kind == Kind::Stack),
                };
                prop_assert_eq!(regions.usage(), usage);
                for region in before {
                    let (first, last) =
                        (region.start.get() / FRAME_SIZE, region.end.get() / FRAME_SIZE);
                    let whole = core::iter::once(first..last);
                    for range in (first..last).map(|at| at..at + 1).chain(whole) {
                        let pages = range.start as usize..range.end as usize;
                        let is_same = model[pages.clone()] == model_before[pages];
                        let range = page(range.start)..page(range.end);
                        prop_assert_eq!(regions.is_as_before(&region, &range), is_same);
                    }
                }
                for index in 0..PAGES {
                    let found = regions.find(page(index) + 5);
                    let found = found.map(|r| r.attributes.from(page(index) - r.start));
                    prop_assert_eq!(&found, &model[index as usize]);
                }
            }
        }
    }
}
