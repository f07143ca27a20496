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
        let words = self.0;
        (0..MAX_CPUS).filter(move |cpu| words[cpu / 64] & (1 << (cpu % 64)) != 0)
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = Self::EMPTY;
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}
