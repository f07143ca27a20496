// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places of the share window ([`crtos_abi::share`]), by number: of which Linux wants the page
//! back, and which the kernel has given up.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::channel::{Channel, word};

impl Channel {
    /// Of the places of a word (below [`crtos_abi::share::PLACE_WORDS`]): those whose file has lost
    /// the page. Linux may say so of any. Any context.
    pub fn recalled(&self, index: usize) -> u64 {
        // Pairs with crtos_channel_recall() of the module.
        word!(self, AtomicU64, recalled[index]).load(Ordering::Acquire)
    }

    /// Tells Linux that the hypervisor knows these places of a word to be given up. The doorbell
    /// has to be rung next. Any context.
    pub fn give_up(&self, index: usize, places: u64) {
        // Pairs with crtos_channel_given_up() of the module.
        word!(self, AtomicU64, given_up[index]).fetch_or(places, Ordering::AcqRel);
        word!(self, AtomicU64, given_up_count).fetch_add(1, Ordering::AcqRel);
    }

    /// Has Linux wake all that wait there at futexes, so that they look whether their words have
    /// changed. The doorbell has to be rung next. Any context.
    pub fn look_at_futexes(&self) {
        // Pairs with crtos_futexes_doorbell() of the module.
        word!(self, AtomicU64, futex_looks).fetch_add(1, Ordering::AcqRel);
    }
}
