// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls on a line of which one is on at a time: those that read, and those that write. A read that
//! waits for several bytes gets them all, and what one write has written is in one piece.

use core::sync::atomic::{AtomicBool, Ordering};

use crtos_core::task::WaitQueue;

use crate::{abi::Errno, files::wait};

/// Whose turn it is.
pub(super) struct Turn {
    is_taken: AtomicBool,
    waiters: WaitQueue,
}

/// It is the caller's as long as this is there.
pub(super) struct Taken<'a>(&'a Turn);

impl Turn {
    /// Nobody's.
    pub const fn new() -> Self {
        Self { is_taken: AtomicBool::new(false), waiters: WaitQueue::new() }
    }

    fn try_take(&self) -> Option<Taken<'_>> {
        self.is_taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Taken(self))
    }

    /// Waits until it is the caller's; EAGAIN instead if that is not to wait. A signal ends the
    /// wait, and the call is made again.
    #[inline(always)]
    pub fn take(&self, nonblocking: bool) -> Result<Taken<'_>, Errno> {
        match self.try_take() {
            Some(taken) => Ok(taken),
            None => wait::take_later(&self.waiters, nonblocking, || self.try_take()),
        }
    }
}

impl Drop for Taken<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.is_taken.store(false, Ordering::Release);
        self.0.waiters.wake(1);
    }
}
