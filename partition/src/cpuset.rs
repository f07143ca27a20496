// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set of CPUs by their index, the number that Linux gives them.

use crtos_abi::MAX_CPUS;

const WORDS: usize = MAX_CPUS / 64;

/// A set of CPU indices below [`MAX_CPUS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet([u64; WORDS]);

impl CpuSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Adds `cpu`; an index out of range is ignored.
    pub fn insert(&mut self, cpu: usize) {
        if let Some(word) = self.0.get_mut(cpu / 64) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Removes `cpu`.
    pub fn remove(&mut self, cpu: usize) {
        if let Some(word) = self.0.get_mut(cpu / 64) {
            *word &= !(1 << (cpu % 64));
        }
    }

    /// Is `cpu` in the set?
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.get(cpu / 64).is_some_and(|word| word & (1 << (cpu % 64)) != 0)
    }

    /// Is nothing in the set?
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Is every member also in `other`?
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| own & !other == 0)
    }

    /// Members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.0.into_iter().enumerate().flat_map(|(index, word)| {
            let rest = |word: &u64| Some(word & (word - 1)).filter(|word| *word != 0);
            core::iter::successors(Some(word).filter(|word| *word != 0), rest)
                .map(move |word| index * 64 + word.trailing_zeros() as usize)
        })
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = Self::EMPTY;
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn holds_what_was_put_in(cpus in prop::collection::btree_set(0..MAX_CPUS, 0..64)) {
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), cpus.clone());
            prop_assert!(set.iter().is_sorted());
            prop_assert_eq!(set.is_empty(), cpus.is_empty());
        }
    }
}
