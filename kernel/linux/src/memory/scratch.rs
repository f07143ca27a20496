// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scratch memory: memory of the program, for the time of a call, through which both kernels reach
//! what one hands to the other.

use crtos_abi::UserAddr;

use crtos_core::mm::space::{AddressSpace, Map, MapError, Placement, Protection};

/// A range of the address space.
pub struct Scratch<'a> {
    space: &'a AddressSpace,
    /// Its address.
    pub start: UserAddr,
    length: u64,
}

impl<'a> Scratch<'a> {
    /// Maps scratch memory of `length` bytes.
    pub fn open(space: &'a AddressSpace, length: u64) -> Result<Self, MapError> {
        let protection = Protection::READ | Protection::WRITE;
        let placement = Placement::Anywhere { hint: UserAddr::NULL };
        let map = Map { is_own: true, ..Map::private(placement, length, protection) };
        let start = space.map(map)?;
        Ok(Self { space, start, length })
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        let _ = self.space.unmap(self.start, self.length);
    }
}
