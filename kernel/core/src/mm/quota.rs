// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory several programs may have together.

use crate::task;
use crate::time::{self, Nanos};
use core::mem;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes that the pages of some address spaces and objects may take, and do. A page that several of
/// them have counts for each.
#[derive(Debug)]
pub struct Quota {
    most: u64,
    used: AtomicU64,
    /// Bytes of what is used that nobody maps any more, and that Linux has to let go.
    leaving: AtomicU64,
}

/// How often bytes that leave are waited for, a millisecond each.
const TRIES: usize = 100;

impl Quota {
    /// One of `most` bytes.
    pub const fn new(most: u64) -> Self {
        Self { most, used: AtomicU64::new(0), leaving: AtomicU64::new(0) }
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

    /// The same; what leaves is waited for. Thread context; may sleep if they are not left.
    pub(super) fn take_waiting(&self, bytes: u64) -> bool {
        for _ in 0..TRIES {
            if self.take(bytes) {
                return true;
            }
            if self.leaving.load(Ordering::Acquire) == 0 {
                break;
            }
            task::sleep_until(time::now() + Nanos::from_millis(1));
        }
        self.take(bytes)
    }

    /// Gives back what was taken. Any context.
    pub(super) fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes of pages that nobody maps any more, while Linux has them: given back when this is dropped.
/// A program would have more than is permitted otherwise by what it leaves in pipes of Linux.
#[derive(Debug)]
pub(super) struct Leaving {
    quota: Option<&'static Quota>,
    bytes: u64,
}

impl Leaving {
    /// None yet.
    pub(super) const fn none() -> Self {
        Self { quota: None, bytes: 0 }
    }

    /// Bytes more, which were taken of `quota`, as all of this are. Any context.
    pub(super) fn add(&mut self, quota: Option<&'static Quota>, bytes: u64) {
        let Some(quota) = quota else { return };
        self.quota = Some(quota);
        self.bytes += bytes;
        quota.leaving.fetch_add(bytes, Ordering::Release);
    }

    /// Takes over what is in `other`, if it is of the same quota; says whether it was. Any context.
    pub(super) fn join(&mut self, other: &mut Self) -> bool {
        let same = self.quota.map(ptr::from_ref) == other.quota.map(ptr::from_ref);
        if same {
            self.bytes += mem::take(&mut other.bytes);
        }
        same
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(quota) = self.quota {
            quota.give_back(self.bytes);
            quota.leaving.fetch_sub(self.bytes, Ordering::Release);
        }
    }
}
