// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that Linux keeps as successors of local ones that have left the realm, by number.

use core::sync::atomic::{AtomicU64, Ordering};

use crtos_abi::channel::SUCCESSOR_WORDS;

use crate::channel::{Channel, word};

/// The word and the bit of a successor.
const fn place(number: u32) -> (usize, u64) {
    (number as usize / 64 % SUCCESSOR_WORDS, 1 << (number % 64))
}

impl Channel {
    /// Has Linux let a successor go. The doorbell has to be rung next. Any context.
    pub fn drop_successor(&self, number: u32) {
        let (index, bit) = place(number);
        // Pairs with crtos_successors_doorbell() and drops_work() of the module.
        word!(self, AtomicU64, successors_dropped[index]).fetch_or(bit, Ordering::AcqRel);
        word!(self, AtomicU64, successor_drops).fetch_add(1, Ordering::AcqRel);
    }

    /// Which successors of a word Linux has yet to let go. Any context.
    pub fn successors_dropped(&self, word: usize) -> u64 {
        // Pairs with drops_work() of the module.
        word!(self, AtomicU64, successors_dropped[word % SUCCESSOR_WORDS]).load(Ordering::Acquire)
    }
}
