// SPDX-License-Identifier: MIT OR Apache-2.0
//! The first stack: where it lies, and what is on it when the program starts.

use alloc::vec::Vec;

use crtos_abi::{PAGE_SIZE, UserAddr, channel::Startup};
use crtos_syscalls::exec::{Facts, build_stack};

use crtos_core::mm::{
    heap,
    space::{AddressSpace, Kind, Map, Placement, Protection},
};

use super::ExecError;

/// Default and greatest size of the stack.
const DEFAULT: u64 = 8 << 20;
const GREATEST: u64 = 64 << 20;

/// Addresses that stay free between the stack and the mappings below it.
const GAP: u64 = 128 << 20;

/// A stack that has a place.
pub struct Stack<'a> {
    startup: &'a Startup,
    /// One past its last address.
    top: UserAddr,
    length: u64,
    /// Random bits that are left.
    random: u64,
}

impl<'a> Stack<'a> {
    /// Chooses the place, for `strings` bytes of arguments and environment.
    pub fn new(startup: &'a Startup, strings: u64) -> Result<Self, ExecError> {
        let wanted = startup.stack_limit;
        let limit = if wanted > GREATEST { DEFAULT } else { wanted };
        let needed = (strings * 2).next_multiple_of(PAGE_SIZE) + 32 * PAGE_SIZE;
        let random =
            u64::from_le_bytes(startup.placement[8..].try_into().map_err(|_| ExecError::Startup)?);
        Ok(Self {
            startup,
            top: UserAddr::new(startup.stack_end()),
            length: limit.next_multiple_of(PAGE_SIZE).max(needed),
            random: random >> 22,
        })
    }

    /// Where mappings go, downwards: 28 bits of pages below the stack, as Linux.
    pub fn mmap_top(&self) -> UserAddr {
        self.top - self.length - GAP - (self.random >> 8 & 0xfff_ffff) * PAGE_SIZE
    }

    /// Maps and fills it; returns the stack pointer.
    pub fn make(
        &self,
        space: &AddressSpace,
        executable: bool,
        path: &[u8],
        strings: &[u8],
        facts: &Facts,
    ) -> Result<UserAddr, ExecError> {
        let Self { startup, top, length, random } = *self;
        let mut protection = Protection::READ | Protection::WRITE;
        if executable {
            protection |= Protection::EXECUTE;
        }
        let placement = Placement::NoReplace(top - length);
        space.map(Map { kind: Kind::Stack, ..Map::private(placement, length, protection) })?;
        let size =
            strings.len() + path.len() + (startup.argc as usize + startup.envc as usize) * 8 + 1024;
        let mut bytes = Vec::new();
        if !heap::makes_room(&mut bytes, size) {
            return Err(ExecError::Memory);
        }
        bytes.resize(size, 0);
        let top = top - (random & 0xff) * 16;
        let pointer = build_stack(&mut bytes, top, path, strings, startup.argc as usize, facts)
            .ok_or(ExecError::Startup)?;
        let used = (top - pointer) as usize;
        space.write(pointer, &bytes[size - used..])?;
        Ok(pointer)
    }
}
