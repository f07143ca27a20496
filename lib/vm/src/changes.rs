// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of any number of regions, one step at a time.
//!
//! Between two steps others may look: what they see is the old state, the new one, or the new one
//! up to some address. That nobody else makes changes meanwhile is up to the caller.
//! Neighbours that are alike become one region, as `/proc/self/maps` shows them under Linux.

use crate::regions::{Attributes, OnFork, Regions, Room, check};
use crate::{MapError, Protection};
use core::ops::Range;
use crtos_abi::UserAddr;

/// Regions that one thread may change and others may look at.
pub trait Stepwise<O: Clone + PartialEq> {
    /// Takes one step, of logarithmic time, while nobody looks.
    fn step<R>(&self, step: impl FnOnce(&mut Regions<O>) -> R) -> R;

    /// Maps a free range, which is page-aligned.
    fn insert(
        &self,
        start: UserAddr,
        length: u64,
        attributes: Attributes<O>,
    ) -> Result<(), MapError> {
        self.step(|regions| regions.insert(start, length, attributes))?;
        self.step(|regions| regions.merge(start));
        self.step(|regions| regions.merge(start + length));
        Ok(())
    }

    /// Unmaps what is in the range, which may have holes. Each region that goes is dropped after
    /// its step.
    fn remove(&self, range: &Range<UserAddr>) -> Result<(), MapError> {
        check(range.start, range.end.get().saturating_sub(range.start.get()))?;
        self.step(|regions| {
            regions.room(1)?;
            regions.split(range.start);
            Ok(())
        })?;
        self.step(|regions| regions.split(range.end));
        while self.step(|regions| regions.remove(range)).is_some() {}
        Ok(())
    }

    /// Changes the rights of a range without holes; [`MapError::Access`] if a part may not be made
    /// writable.
    fn protect(
        &self,
        start: UserAddr,
        length: u64,
        protection: Protection,
    ) -> Result<(), MapError> {
        let writes = protection.contains(Protection::WRITE);
        let may_write = |attributes: &Attributes<O>| {
            attributes.backing.as_ref().is_none_or(|backing| backing.may_write)
        };
        self.change(
            start,
            length,
            |attributes| {
                if writes && !may_write(attributes) { Err(MapError::Access) } else { Ok(()) }
            },
            |attributes| attributes.protection = protection,
        )
    }

    /// Locks a range without holes, or unlocks it.
    fn lock(&self, start: UserAddr, length: u64, locked: bool) -> Result<(), MapError> {
        self.change(start, length, |_| Ok(()), |attributes| attributes.locked = locked)
    }

    /// Changes what a forked process gets of a range without holes; [`MapError::Invalid`] if an
    /// object were to be cleared.
    fn set_on_fork(
        &self,
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

    /// Changes the attributes of a range without holes if `accept` has no objection to any of them.
    fn change(
        &self,
        start: UserAddr,
        length: u64,
        accept: impl Fn(&Attributes<O>) -> Result<(), MapError>,
        change: impl Fn(&mut Attributes<O>),
    ) -> Result<(), MapError> {
        check(start, length)?;
        let end = start.checked_add(length).ok_or(MapError::NoMemory)?;
        let mut accepted = Ok(());
        let mut at = start;
        while at < end {
            let region = self.step(|regions| regions.find(at)).ok_or(MapError::NoMemory)?;
            accepted = accepted.and_then(|()| accept(&region.attributes));
            at = region.end;
        }
        accepted?;
        self.step(|regions| {
            regions.room(2)?;
            regions.split(start);
            Ok(())
        })?;
        self.step(|regions| regions.split(end));
        let mut at = start;
        while let Some(next) =
            (at < end).then(|| self.step(|regions| regions.change(at, &change))).flatten()
        {
            self.step(|regions| regions.merge(at));
            at = next;
        }
        self.step(|regions| regions.merge(end));
        Ok(())
    }

    /// Returns the highest free address for `length` bytes below `top`, aligned to `align` (a power
    /// of two, at least a page).
    fn find_free(&self, length: u64, align: u64, top: UserAddr) -> Option<UserAddr> {
        let mut end = top;
        loop {
            match self.step(|regions| regions.room_below(end, length, align)) {
                Room::At(start) => return Some(start),
                Room::Below(lower) => end = lower,
                Room::None => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backing, FRAME_SIZE, Kind, Region, Usage};
    use core::cell::RefCell;
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
        Lock(u64, u64, bool),
        Clear(u64, u64, bool),
        Find(u64, u64, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..PAGES, 1u64..12, 0u8..4, 0u8..5).prop_map(|(s, l, p, k)| Step::Insert(s, l, p, k)),
            (0..PAGES, 1u64..12).prop_map(|(s, l)| Step::Remove(s, l)),
            (0..PAGES, 1u64..12, 0u8..4).prop_map(|(s, l, p)| Step::Protect(s, l, p)),
            (0..PAGES, 1u64..12, any::<bool>()).prop_map(|(s, l, on)| Step::Lock(s, l, on)),
            (0..PAGES, 1u64..12, any::<bool>()).prop_map(|(s, l, on)| Step::Clear(s, l, on)),
            (1u64..12, 0u64..3, 0..PAGES + 1).prop_map(|(l, a, t)| Step::Find(l, a, t)),
        ]
    }

    /// Plain memory, the heap, or an object: private, shared, shared and never writable. Objects
    /// are mapped at the offsets of their addresses.
    fn attributes(protection: u8, which: u8, page: u64) -> Attributes<u8> {
        let protection = Protection::from_bits_truncate(protection);
        let kind = if which == 1 { Kind::Heap } else { Kind::Anonymous };
        let backing = (which > 1).then_some(Backing {
            object: which,
            offset: page * FRAME_SIZE,
            shared: which > 2,
            may_write: which != 4,
        });
        Attributes { backing, ..Attributes::plain(protection, kind) }
    }

    type Model = Vec<Option<Attributes<u8>>>;

    /// Regions, and what they were after each step.
    struct Watched {
        regions: RefCell<Regions<u8>>,
        seen: RefCell<Vec<Model>>,
    }

    impl Watched {
        fn new(allowed: &[Range<UserAddr>]) -> Self {
            let regions = RefCell::new(Regions::new(allowed));
            Self { regions, seen: RefCell::default() }
        }
    }

    impl Stepwise<u8> for Watched {
        fn step<R>(&self, step: impl FnOnce(&mut Regions<u8>) -> R) -> R {
            let mut regions = self.regions.borrow_mut();
            let result = step(&mut regions);
            let page_of = |number| {
                let region = regions.find(page(number))?;
                Some(region.attributes.from(page(number) - region.start))
            };
            self.seen.borrow_mut().push((0..PAGES).map(page_of).collect());
            result
        }
    }

    /// Whether each page is as before or as after, and none is as before that lies below one which
    /// is as after and has changed.
    fn is_on_the_way(seen: &Model, before: &Model, after: &Model) -> bool {
        let changed = |&page: &usize| before[page] != after[page];
        let all: Vec<usize> = (0..PAGES as usize).collect();
        let there =
            all.iter().copied().filter(changed).take_while(|&page| seen[page] == after[page]);
        let there = there.count();
        all.iter().all(|page| changed(page) || seen[*page] == before[*page])
            && all
                .iter()
                .copied()
                .filter(changed)
                .skip(there)
                .all(|page| seen[page] == before[page])
    }

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

    proptest! {
        #[test]
        fn behaves_like_an_array_of_pages(steps in proptest::collection::vec(step(), 0..120)) {
            let allowed = [page(0)..page(HOLE.start), page(HOLE.end)..page(PAGES)];
            let regions = Watched::new(&allowed);
            let mut model: Model = vec![None; PAGES as usize];
            let usable = |s: u64, l: u64| s + l <= PAGES && (s + l <= HOLE.start || s >= HOLE.end);
            for step in steps {
                let before = model.clone();
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
                        prop_assert_eq!(regions.remove(&(page(s)..page(s + l))), Ok(()));
                        (s..(s + l).min(PAGES)).for_each(|page| model[page as usize] = None);
                    }
                    Step::Protect(s, l, p) => {
                        let protection = Protection::from_bits_truncate(p);
                        let result = regions.protect(page(s), l * FRAME_SIZE, protection);
                        let whole =
                            s + l <= PAGES && (s..s + l).all(|page| model[page as usize].is_some());
                        let denied = protection.contains(Protection::WRITE)
                            && whole
                            && (s..s + l).any(|page| {
                                model[page as usize].as_ref().is_some_and(|a| {
                                    a.backing.as_ref().is_some_and(|b| !b.may_write)
                                })
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
                    Step::Lock(s, l, on) => {
                        let whole =
                            s + l <= PAGES && (s..s + l).all(|page| model[page as usize].is_some());
                        prop_assert_eq!(regions.lock(page(s), l * FRAME_SIZE, on).is_ok(), whole);
                        if whole {
                            (s..s + l).for_each(|page| {
                                if let Some(entry) = &mut model[page as usize] {
                                    entry.locked = on
                                }
                            });
                        }
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
                for seen in regions.seen.take() {
                    prop_assert!(is_on_the_way(&seen, &before, &model));
                }
                let regions = regions.regions.borrow();
                prop_assert_eq!(regions.iter().collect::<Vec<_>>(), runs(&model));
                let bytes = |counts: &dyn Fn(&Attributes<u8>) -> bool| {
                    model.iter().flatten().filter(|a| counts(a)).count() as u64 * FRAME_SIZE
                };
                let usage = Usage {
                    mapped: bytes(&|_| true),
                    data: bytes(&|a| a.protection.contains(Protection::WRITE) && !a.is_shared()),
                    locked: bytes(&|a| a.locked),
                };
                prop_assert_eq!(regions.usage(), usage);
                for index in 0..PAGES {
                    let found = regions.find(page(index) + 5);
                    let found = found.map(|r| r.attributes.from(page(index) - r.start));
                    prop_assert_eq!(&found, &model[index as usize]);
                }
            }
        }
    }
}
