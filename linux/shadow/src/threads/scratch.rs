// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scratch memory, for a call that prepares something.
//!
//! A thread that shares its memory with a parent, and executes a program, would leave the memory
//! behind in the parent. So its block notes it, and whoever gets the block next frees it.

use super::local::own;
use crate::sys::{Errno, mapping::Mapping};

/// Words for the calling thread. It has one such memory at a time.
pub struct Scratch {
    memory: Mapping,
}

impl Scratch {
    /// Maps room for `words` words, which are 0 first.
    pub fn take(words: usize) -> Result<Self, Errno> {
        let memory = Mapping::anywhere(words * size_of::<u64>())?;
        own().note_scratch(&memory);
        Ok(Self { memory })
    }

    /// Returns the address of the first word.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Returns the words.
    pub fn words_mut(&mut self) -> &mut [u64] {
        self.memory.words_mut()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        own().forget_scratch();
    }
}
