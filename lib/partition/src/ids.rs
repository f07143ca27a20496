// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of CPUs, local APICs and cells. Each has a type, so that one is not taken for another.

use core::fmt;

use crtos_abi::{MAX_CELLS, MAX_CPUS};
pub use crtos_registers::apic::ApicId;

/// The index of a CPU, below [`MAX_CPUS`]: the number that Linux gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuIndex(u8);

const _: () = assert!(MAX_CPUS == u8::MAX as usize + 1);

impl CpuIndex {
    /// The CPU `index`; `None` if the number is too large.
    pub const fn new(index: usize) -> Option<Self> {
        if index < MAX_CPUS { Some(Self(index as u8)) } else { None }
    }

    /// The CPU `index`, which somebody else says; `None` if the number is too large.
    pub fn named(index: u64) -> Option<Self> {
        u8::try_from(index).ok().map(Self)
    }

    /// Its number.
    pub const fn get(self) -> usize {
        self.0 as usize
    }

    /// The first `count` CPUs in ascending order; all of them if there are not that many.
    pub fn first(count: usize) -> impl Iterator<Item = Self> {
        (0..count.min(MAX_CPUS)).map(|index| Self(index as u8))
    }
}

impl fmt::Display for CpuIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The number of a cell beside the root cell, below [`MAX_CELLS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CellId(u8);

const _: () = assert!(MAX_CELLS <= u8::MAX as usize);

impl CellId {
    /// All that there can be, in ascending order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..MAX_CELLS as u8).map(Self)
    }

    /// Cell `number`; `None` if the number is too large.
    pub const fn new(number: usize) -> Option<Self> {
        if number < MAX_CELLS { Some(Self(number as u8)) } else { None }
    }

    /// Its number.
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}
