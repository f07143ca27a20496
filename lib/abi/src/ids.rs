// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers that name something, each with a type of its own.
//!
//! The structures that the parts share hold bare words: who reads one checks it, and has the type
//! from there on.

use core::fmt;

use crate::MAX_CELL_CPUS;

/// A CPU of the realm, by its index in the cell, which is below [`MAX_CELL_CPUS`]. Linux and the
/// hypervisor know the same CPU by another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RealmCpu(u32);

const _: () = assert!(MAX_CELL_CPUS.is_power_of_two());

impl RealmCpu {
    /// Returns the one that starts first.
    pub const fn first() -> Self {
        Self(0)
    }

    /// Returns the CPU of that index, whoever names it; `None` if there is none.
    #[inline]
    pub const fn new(index: usize) -> Option<Self> {
        if index < MAX_CELL_CPUS { Some(Self(index as u32)) } else { None }
    }

    /// Returns the CPU of an index that came from [`RealmCpu::get`], without a check: of a greater
    /// one the remainder counts.
    #[inline]
    pub const fn again(index: u32) -> Self {
        Self(index % MAX_CELL_CPUS as u32)
    }

    /// Returns its index.
    #[inline]
    pub const fn get(self) -> usize {
        // It is below anyway: with the remainder, an index needs no second check.
        self.0 as usize % MAX_CELL_CPUS
    }

    /// Returns its index as the word that it is in the channel.
    #[inline]
    pub const fn to_word(self) -> u32 {
        self.0
    }

    /// Iterates over all that there can be, in ascending order.
    #[inline]
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MAX_CELL_CPUS as u32).map(Self)
    }
}

impl fmt::Display for RealmCpu {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_of_a_cell() {
        assert_eq!(RealmCpu::new(MAX_CELL_CPUS), None);
        let last = RealmCpu::new(MAX_CELL_CPUS - 1);
        assert_eq!(last, RealmCpu::all().last());
        assert_eq!(last.map(|cpu| RealmCpu::again(cpu.to_word())), last);
        assert_eq!(last.map(RealmCpu::get), Some(MAX_CELL_CPUS - 1));
    }
}
