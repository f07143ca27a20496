// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ranges of addresses that a container has mapped for its functions, by Linux's rules
//! (`drivers/vfio/vfio_iommu_type1.c`).

use alloc::collections::BTreeMap;
use core::ops::RangeInclusive;

use crate::Refused;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Most ranges of a container, as Linux has it (`dma_entry_limit`).
pub const MOST: usize = 65535;
/// Addresses that are messages where a function names them.
const MESSAGES: (u64, u64) = (0xfee0_0000, 0xfeef_ffff);

/// Where all ranges begin.
pub const ALL: RangeInclusive<u64> = 0..=u64::MAX;
/// Where none begins: at no multiple of a page.
const NONE: RangeInclusive<u64> = 1..=1;

/// Which rules hold for unmapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// Type 1: all of a range goes with its first page, and none with another one.
    First,
    /// Type 1, version 2: a range goes as a whole.
    Second,
}

/// The ranges, each with a `T`.
#[derive(Debug)]
pub struct Ranges<T>(BTreeMap<u64, (u64, T)>);

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

/// What functions can name if their addresses have `width` bits: first and last addresses.
pub fn possible(width: u32) -> [(u64, u64); 2] {
    [(0, MESSAGES.0 - 1), (MESSAGES.1 + 1, (1 << width.clamp(32, 63)) - 1)]
}

/// The last byte of a range of whole pages that does not pass the end.
fn last_of(start: u64, size: u64) -> Result<u64, Refused> {
    let whole = size > 0 && (start | size).is_multiple_of(PAGE);
    start.checked_add(size.wrapping_sub(1)).filter(|_| whole).ok_or(Refused::Invalid)
}

impl<T> Ranges<T> {
    /// Whether a range can be mapped for functions whose addresses have `width` bits.
    pub fn check(&self, start: u64, size: u64, width: u32) -> Result<(), Refused> {
        let last = last_of(start, size)?;
        if self.overlapping(start, last).next().is_some() {
            return Err(Refused::Exists);
        }
        if self.0.len() >= MOST {
            return Err(Refused::Full);
        }
        let fits = possible(width).iter().any(|&(first, end)| first <= start && last <= end);
        if fits { Ok(()) } else { Err(Refused::Invalid) }
    }

    /// Maps a range that was [checked](Self::check).
    pub fn insert(&mut self, start: u64, size: u64, value: T) {
        self.0.insert(start, (size, value));
    }

    /// Where the ranges begin that go when a range is unmapped: each is to be [taken](Self::take).
    pub fn leaving(
        &self,
        rules: Rules,
        start: u64,
        size: u64,
    ) -> Result<RangeInclusive<u64>, Refused> {
        let last = last_of(start, size)?;
        let begins_before = self.overlapping(start, last).next().is_some_and(|first| first < start);
        let mut behind = self.0.range(..=last).rev();
        let ends_behind = behind.next().is_some_and(|(range, (size, _))| range + (size - 1) > last);
        match rules {
            Rules::Second if begins_before || ends_behind => Err(Refused::Invalid),
            Rules::First if begins_before => Ok(NONE),
            _ => Ok(start..=last),
        }
    }

    /// Takes out one of the ranges that begin there: how many bytes it has, and what was there.
    /// `None` if none is left. So as many as there are go without memory for a list of them.
    pub fn take(&mut self, beginning: &RangeInclusive<u64>) -> Option<(u64, T)> {
        let (&start, _) = self.0.range(beginning.clone()).next()?;
        self.0.remove(&start)
    }

    /// Where the ranges begin that have a part of these addresses.
    fn overlapping(&self, start: u64, last: u64) -> impl Iterator<Item = u64> {
        let before = self.0.range(..start).next_back();
        let before = before.filter(move |(range, (size, _))| **range + (size - 1) >= start);
        before.into_iter().chain(self.0.range(start..=last)).map(|(start, _)| *start)
    }

    /// All of them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.values_mut().map(|(_, value)| value)
    }

    /// How many more there can be.
    pub fn available(&self) -> u32 {
        (MOST - self.0.len().min(MOST)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::iter;
    use proptest::prelude::*;

    #[test]
    fn messages_and_what_is_too_high_are_no_memory() {
        let none = Ranges::<()>::default();
        let check = |start, size| none.check(start, size, 39);
        assert_eq!(check(0, 0xfee0_0000), Ok(()));
        assert_eq!(check(0, 0xfee0_1000), Err(Refused::Invalid));
        assert_eq!(check(0xfee0_0000, PAGE), Err(Refused::Invalid));
        assert_eq!(check(0xfef0_0000, PAGE), Ok(()));
        assert_eq!(check((1 << 39) - PAGE, PAGE), Ok(()));
        assert_eq!(check(1 << 39, PAGE), Err(Refused::Invalid));
        assert_eq!(check(1 << 39, 0), Err(Refused::Invalid));
        assert_eq!(check(PAGE, PAGE - 1), Err(Refused::Invalid));
        assert_eq!(check(u64::MAX - PAGE + 1, 2 * PAGE), Err(Refused::Invalid));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Map(u64, u64),
        Unmap(u64, u64),
        All,
    }

    fn take_all(ranges: &mut Ranges<usize>, leaving: &RangeInclusive<u64>) -> (u64, Vec<usize>) {
        let (sizes, values) = iter::from_fn(|| ranges.take(leaving)).unzip::<_, _, Vec<_>, _>();
        (sizes.into_iter().sum(), values)
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = || (0u64..24, 0u64..8);
        prop_oneof![
            4 => range().prop_map(|(start, pages)| Step::Map(start, pages)),
            3 => range().prop_map(|(start, pages)| Step::Unmap(start, pages)),
            1 => Just(Step::All),
        ]
    }

    proptest! {
        /// The ranges are those of a plain list of pages, each with the number of its range.
        #[test]
        fn ranges_are_those_of_linux(
            second: bool,
            steps in prop::collection::vec(step(), 1..40),
        ) {
            let rules = if second { Rules::Second } else { Rules::First };
            let mut ranges = Ranges::default();
            let mut pages = [None; 32];
            for (number, step) in steps.into_iter().enumerate() {
                let bytes = |pages: u64| pages * PAGE;
                let taken = match step {
                    Step::Map(start, count) => {
                        let part = &mut pages[start as usize..(start + count) as usize];
                        let expected = match () {
                            () if count == 0 => Err(Refused::Invalid),
                            () if part.iter().any(Option::is_some) => Err(Refused::Exists),
                            () => Ok(()),
                        };
                        let checked = ranges.check(bytes(start), bytes(count), 48);
                        prop_assert_eq!(checked, expected);
                        if checked.is_ok() {
                            ranges.insert(bytes(start), bytes(count), number);
                            part.fill(Some(number));
                        }
                        continue;
                    }
                    Step::Unmap(start, count) => {
                        let leaving = ranges.leaving(rules, bytes(start), bytes(count));
                        let taken = leaving.map(|leaving| take_all(&mut ranges, &leaving));
                        let (start, end) = (start as usize, (start + count) as usize);
                        let is_cut = |at: usize| {
                            at > 0 && at < 32 && pages[at].is_some() && pages[at] == pages[at - 1]
                        };
                        let any = pages[start..end].iter().any(Option::is_some);
                        let refused = count == 0 || second && any && (is_cut(start) || is_cut(end));
                        prop_assert_eq!(taken.is_err(), refused);
                        let Ok(taken) = taken else { continue };
                        if !second && count > 0 && is_cut(start) {
                            prop_assert_eq!(taken.0, 0);
                            continue;
                        }
                        taken
                    }
                    Step::All => {
                        let taken = take_all(&mut ranges, &ALL);
                        prop_assert_eq!(ranges.available() as usize, MOST);
                        taken
                    }
                };
                let mut gone = 0;
                for page in &mut pages {
                    if page.is_some_and(|number| taken.1.contains(&number)) {
                        *page = None;
                        gone += PAGE;
                    }
                }
                prop_assert_eq!(taken.0, gone);
                if let Step::Unmap(start, count) = step {
                    let part = &pages[start as usize..(start + count) as usize];
                    prop_assert!(part.iter().all(Option::is_none));
                }
            }
        }
    }
}
