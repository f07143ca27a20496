// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-ups of the realm that are under way in Linux.
//!
//! Such a wake-up is for those who wait in Linux. Those of the realm who waited when it was made
//! have been woken here. Yet it reaches the representative of who has begun to wait since then,
//! and looks there as one of Linux does. So wake-ups are counted: a representative that none was
//! under way for, as long as it waited, was woken by Linux.
//!
//! Words share counts. So a representative may be taken to be reached by a wake-up at another word.

use core::sync::atomic::{AtomicU64, Ordering};

use crtos_locks::Key;

/// How many counts there are.
const CROWDS: usize = 64;

/// For each crowd how many have begun, in the upper half, and how many are under way, in the lower
/// one.
static COUNTS: [AtomicU64; CROWDS] = [const { AtomicU64::new(0) }; CROWDS];

/// One that has begun and is under way.
const ONE: u64 = 1 << 32 | 1;

/// What is under way at some time.
#[derive(Clone, Copy)]
pub(super) struct Since {
    crowd: u8,
    count: u64,
}

impl Since {
    /// What is under way now.
    pub(super) fn now(crowd: u8) -> Self {
        Self { crowd, count: count(crowd).load(Ordering::Acquire) }
    }

    /// Whether any was under way then, or has begun since.
    pub(super) fn any(self) -> bool {
        self.count as u32 != 0
            || self.count >> 32 != count(self.crowd).load(Ordering::Acquire) >> 32
    }
}

/// Returns the crowd of wake-ups at the futex `key`.
pub(super) fn crowd(key: Key) -> u8 {
    // Words lie 4 bytes apart, often at the same place of their page.
    let mixed = (key.offset >> 2 ^ key.offset >> 12 ^ key.space << 1) as usize;
    (mixed % CROWDS) as u8
}

/// One begins: before Linux is asked for it.
pub(super) fn begin(crowd: u8) {
    count(crowd).fetch_add(ONE, Ordering::AcqRel);
}

/// One is over: Linux has answered, or never will.
pub(super) fn end(crowd: u8) {
    count(crowd).fetch_sub(1, Ordering::AcqRel);
}

fn count(crowd: u8) -> &'static AtomicU64 {
    &COUNTS[usize::from(crowd) % CROWDS]
}
