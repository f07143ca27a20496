// SPDX-License-Identifier: MIT OR Apache-2.0
//! A set of CPUs by their index, the number that Linux gives them.

use crtos_abi::MAX_CPUS;

use crate::ids::CpuIndex;

const WORDS: usize = MAX_CPUS / 64;

/// A set of CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSet([u64; WORDS]);

impl CpuSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuIndex) {
        self.0[cpu.get() / 64] |= 1 << (cpu.get() % 64);
    }

    /// Tells whether `cpu` is in the set.
    pub fn contains(&self, cpu: CpuIndex) -> bool {
        self.0[cpu.get() / 64] & 1 << (cpu.get() % 64) != 0
    }

    /// Counts the members.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Tells whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Tells whether every member is also in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| own & !other == 0)
    }

    /// Members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CpuIndex> + use<> {
        self.0.into_iter().enumerate().flat_map(|(index, word)| {
            let rest = |word: &u64| Some(word & (word - 1)).filter(|word| *word != 0);
            core::iter::successors(Some(word).filter(|word| *word != 0), rest)
                .filter_map(move |word| CpuIndex::new(index * 64 + word.trailing_zeros() as usize))
        })
    }
}

impl FromIterator<CpuIndex> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuIndex>>(cpus: I) -> Self {
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
            let cpus: BTreeSet<CpuIndex> = cpus.into_iter().filter_map(CpuIndex::new).collect();
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), cpus.clone());
            prop_assert_eq!(set.len(), cpus.len());
            prop_assert!(
                CpuIndex::first(MAX_CPUS).all(|cpu| set.contains(cpu) == cpus.contains(&cpu))
            );
            prop_assert!(set.iter().is_sorted());
            prop_assert_eq!(set.is_empty(), cpus.is_empty());
        }
    }
}
