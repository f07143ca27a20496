// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory several programs may have together.

use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes that the pages of some address spaces and objects may take, and do. A page that several of
/// them have counts for each.
#[derive(Debug)]
pub struct Quota {
    most: u64,
    used: AtomicU64,
}

impl Quota {
    /// One of `most` bytes.
    pub const fn new(most: u64) -> Self {
        Self { most, used: AtomicU64::new(0) }
    }

    /// How many bytes there are. Any context.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// Whether that many bytes are left. Any context.
    pub fn has(&self, bytes: u64) -> bool {
        bytes <= self.most.saturating_sub(self.used.load(Ordering::Relaxed))
    }

    /// Takes bytes, if they are left. Any context.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let within = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within).is_ok()
    }

    /// Gives back what was taken. Any context.
    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
