// SPDX-License-Identifier: MIT OR Apache-2.0
//! The regions of an address space: which addresses a program may use, with which rights, for what.
//!
//! Regions never overlap; neighbours that are alike are one region, as `/proc/self/maps` shows them
//! under Linux. Free room is looked for from the top downwards.

use crate::{FRAME_SIZE, Kind, MapError, Protection};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Most regions of an address space (Linux's default of vm.max_map_count).
pub const MAX_REGIONS: usize = 65530;

/// One region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Rights.
    pub protection: Protection,
    /// What it is.
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Body {
    end: u64,
    protection: Protection,
    kind: Kind,
}

/// All regions of an address space.
#[derive(Debug)]
pub struct Regions {
    map: BTreeMap<u64, Body>,
    /// Ranges of addresses that a program may use, ascending.
    allowed: Vec<Range<u64>>,
    mapped: u64,
}

impl Regions {
    /// No regions; addresses in `allowed` (page aligned, ascending, disjoint) may be used.
    pub fn new(allowed: &[Range<u64>]) -> Self {
        Self { map: BTreeMap::new(), allowed: allowed.to_vec(), mapped: 0 }
    }

    /// Mapped bytes.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// The region that `address` lies in.
    pub fn find(&self, address: u64) -> Option<Region> {
        self.at_or_before(address).filter(|region| address < region.end)
    }

    /// The first region that ends behind `address`.
    pub fn find_from(&self, address: u64) -> Option<Region> {
        self.find(address).or_else(|| self.map.range(address..).next().map(Self::region))
    }

    /// All regions in order.
    pub fn iter(&self) -> impl Iterator<Item = Region> + '_ {
        self.map.iter().map(Self::region)
    }

    /// Whether a program may use the range at all. `length` may be any number.
    pub fn is_allowed(&self, start: u64, length: u64) -> bool {
        start.checked_add(length).is_some_and(|end| {
            self.allowed.iter().any(|range| range.start <= start && end <= range.end)
        })
    }

    /// Whether nothing is mapped in `start..start + length`.
    pub fn is_free(&self, start: u64, length: u64) -> bool {
        self.find_from(start).is_none_or(|region| region.start >= start.saturating_add(length))
    }

    /// Whether all of `start..end` is mapped.
    pub fn is_mapped(&self, start: u64, end: u64) -> bool {
        let mut at = start;
        while at < end {
            match self.find(at) {
                Some(region) => at = region.end,
                None => return false,
            }
        }
        true
    }

    /// The highest free address for `length` bytes below `top`, aligned to `align` (a power of two,
    /// at least a page).
    pub fn find_free(&self, length: u64, align: u64, top: u64) -> Option<u64> {
        for allowed in self.allowed.iter().rev() {
            let mut end = allowed.end.min(top);
            while let Some(start) = end.checked_sub(length).map(|start| start & !(align - 1))
                && start >= allowed.start
            {
                // The last region that begins below the end of the candidate is the only one that
                // can be in the way first.
                match self.map.range(..start + length).next_back().map(Self::region) {
                    Some(region) if region.end > start => end = region.start,
                    _ => return Some(start),
                }
            }
        }
        None
    }

    /// Maps a free range.
    pub fn insert(
        &mut self,
        start: u64,
        length: u64,
        protection: Protection,
        kind: Kind,
    ) -> Result<(), MapError> {
        Self::check(start, length)?;
        if !self.is_allowed(start, length) {
            return Err(MapError::Denied);
        }
        if !self.is_free(start, length) {
            return Err(MapError::Exists);
        }
        self.room(1)?;
        self.map.insert(start, Body { end: start + length, protection, kind });
        self.mapped += length;
        self.merge(start);
        self.merge(start + length);
        Ok(())
    }

    /// Unmaps all in the range; holes are fine. `removed` gets each piece.
    pub fn remove(
        &mut self,
        start: u64,
        length: u64,
        mut removed: impl FnMut(Region),
    ) -> Result<(), MapError> {
        Self::check(start, length)?;
        let end = start.checked_add(length).ok_or(MapError::Invalid)?;
        self.room(1)?;
        self.split(start);
        self.split(end);
        while let Some(region) = self.map.range(start..end).next().map(Self::region) {
            self.map.remove(&region.start);
            self.mapped -= region.end - region.start;
            removed(region);
        }
        Ok(())
    }

    /// Changes the rights of a range without holes.
    pub fn protect(
        &mut self,
        start: u64,
        length: u64,
        protection: Protection,
    ) -> Result<(), MapError> {
        Self::check(start, length)?;
        let end = start.checked_add(length).ok_or(MapError::NoMemory)?;
        if !self.is_mapped(start, end) {
            return Err(MapError::NoMemory);
        }
        self.room(2)?;
        self.split(start);
        self.split(end);
        for (_, body) in self.map.range_mut(start..end) {
            body.protection = protection;
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
        Ok(())
    }

    fn region((&start, body): (&u64, &Body)) -> Region {
        Region { start, end: body.end, protection: body.protection, kind: body.kind }
    }

    fn at_or_before(&self, address: u64) -> Option<Region> {
        self.map.range(..=address).next_back().map(Self::region)
    }

    fn check(start: u64, length: u64) -> Result<(), MapError> {
        if length == 0 || !(start | length).is_multiple_of(FRAME_SIZE) {
            Err(MapError::Invalid)
        } else {
            Ok(())
        }
    }

    fn room(&self, more: usize) -> Result<(), MapError> {
        if self.map.len() + more > MAX_REGIONS { Err(MapError::NoMemory) } else { Ok(()) }
    }

    /// Makes `at` a boundary if it lies inside a region.
    fn split(&mut self, at: u64) {
        if let Some(region) = self.find(at)
            && region.start < at
            && let Some(body) = self.map.get_mut(&region.start)
        {
            let rest = *body;
            body.end = at;
            self.map.insert(at, rest);
        }
    }

    /// Joins the regions that meet at `at` if they are alike.
    fn merge(&mut self, at: u64) {
        let Some(&after) = self.map.get(&at) else { return };
        let Some((_, before)) = self.map.range_mut(..at).next_back() else { return };
        if before.end == at && before.protection == after.protection && before.kind == after.kind {
            before.end = after.end;
            self.map.remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: u64 = 64;
    const HOLE: Range<u64> = 40..44;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, u64, u8, bool),
        Remove(u64, u64),
        Protect(u64, u64, u8),
        Find(u64, u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..PAGES, 1u64..12, 0u8..3, any::<bool>())
                .prop_map(|(s, l, p, k)| Step::Insert(s, l, p, k)),
            (0..PAGES, 1u64..12).prop_map(|(s, l)| Step::Remove(s, l)),
            (0..PAGES, 1u64..12, 0u8..3).prop_map(|(s, l, p)| Step::Protect(s, l, p)),
            (1u64..12, 0u64..3, 0..PAGES + 1).prop_map(|(l, a, t)| Step::Find(l, a, t)),
        ]
    }

    fn kind(other: bool) -> Kind {
        if other { Kind::Heap } else { Kind::Anonymous }
    }

    type Model = Vec<Option<(Protection, Kind)>>;

    /// The regions that the array of pages means.
    fn runs(model: &Model) -> Vec<Region> {
        let mut regions: Vec<Region> = Vec::new();
        for (page, entry) in model.iter().enumerate() {
            let Some((protection, kind)) = *entry else { continue };
            let start = page as u64 * FRAME_SIZE;
            match regions.last_mut() {
                Some(last)
                    if last.end == start && last.protection == protection && last.kind == kind =>
                {
                    last.end += FRAME_SIZE
                }
                _ => regions.push(Region { start, end: start + FRAME_SIZE, protection, kind }),
            }
        }
        regions
    }

    proptest! {
        #[test]
        fn behaves_like_an_array_of_pages(steps in proptest::collection::vec(step(), 0..120)) {
            let allowed = [0..HOLE.start * FRAME_SIZE, HOLE.end * FRAME_SIZE..PAGES * FRAME_SIZE];
            let mut regions = Regions::new(&allowed);
            let mut model: Model = vec![None; PAGES as usize];
            let usable = |s: u64, l: u64| s + l <= PAGES && (s + l <= HOLE.start || s >= HOLE.end);
            for step in steps {
                match step {
                    Step::Insert(s, l, p, k) => {
                        let protection = Protection::from_bits_truncate(p);
                        let result = regions.insert(s * FRAME_SIZE, l * FRAME_SIZE, protection, kind(k));
                        if !usable(s, l) {
                            prop_assert_eq!(result, Err(MapError::Denied));
                        } else if (s..s + l).any(|page| model[page as usize].is_some()) {
                            prop_assert_eq!(result, Err(MapError::Exists));
                        } else {
                            prop_assert_eq!(result, Ok(()));
                            (s..s + l).for_each(|page| model[page as usize] = Some((protection, kind(k))));
                        }
                    }
                    Step::Remove(s, l) => {
                        let mut pages = 0;
                        regions.remove(s * FRAME_SIZE, l * FRAME_SIZE, |r| pages += (r.end - r.start) / FRAME_SIZE).unwrap();
                        for page in s..(s + l).min(PAGES) {
                            if model[page as usize].take().is_some() { pages -= 1; }
                        }
                        prop_assert_eq!(pages, 0);
                    }
                    Step::Protect(s, l, p) => {
                        let protection = Protection::from_bits_truncate(p);
                        let result = regions.protect(s * FRAME_SIZE, l * FRAME_SIZE, protection);
                        let whole = s + l <= PAGES && (s..s + l).all(|page| model[page as usize].is_some());
                        prop_assert_eq!(result.is_ok(), whole);
                        if whole {
                            (s..s + l).for_each(|page| if let Some(entry) = &mut model[page as usize] { entry.0 = protection });
                        }
                    }
                    Step::Find(l, a, top) => {
                        let align = 1 << a;
                        let expected = (0..top).rev().find(|&s| s % align == 0 && s + l <= top && usable(s, l)
                            && (s..s + l).all(|page| model[page as usize].is_none()));
                        let found = regions.find_free(l * FRAME_SIZE, align * FRAME_SIZE, top * FRAME_SIZE);
                        prop_assert_eq!(found, expected.map(|s| s * FRAME_SIZE));
                    }
                }
                prop_assert_eq!(regions.iter().collect::<Vec<_>>(), runs(&model));
                prop_assert_eq!(regions.mapped(), model.iter().flatten().count() as u64 * FRAME_SIZE);
                for page in 0..PAGES {
                    let found = regions.find(page * FRAME_SIZE + 5).map(|r| (r.protection, r.kind));
                    prop_assert_eq!(found, model[page as usize]);
                }
            }
        }
    }
}
