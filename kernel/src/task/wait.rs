// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues of waiting threads, woken in the order of their priority, first come first served within one level.

use crate::task::{Thread, WakeReason};
use crate::time::Nanos;

/// Threads that wait for something.
pub struct WaitQueue {}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {}
    }

    /// Sleeps until `condition` gives something, and returns that; `None` when the deadline passed or `interrupted` said true.
    /// Both are called again after each wake, in the context of the caller with no lock held.
    pub fn wait_until<R>(&self, _deadline: Option<Nanos>, _interrupted: impl Fn(&Thread) -> bool, _condition: impl FnMut() -> Option<R>) -> Result<R, WaitError> {
        unimplemented!()
    }

    /// Adds the current thread; it leaves by [`WaitQueue::remove`]. For threads that wait on several queues at once:
    /// add to all, check all conditions, [`crate::task::block`], remove from all.
    pub fn add(&self) {
        unimplemented!()
    }

    /// Removes the current thread.
    pub fn remove(&self) {
        unimplemented!()
    }

    /// Wakes up to `count` threads, highest level first, and takes them off the queue; returns how many. Any context.
    pub fn wake(&self, _count: usize) -> usize {
        unimplemented!()
    }

    /// Wakes all. Any context.
    pub fn wake_all(&self) -> usize {
        self.wake(usize::MAX)
    }
}

/// Why a wait ended without its condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitError {
    /// The deadline passed.
    Timeout,
    /// `interrupted` said true.
    Interrupted,
}
#[allow(unused)]
type R = WakeReason;
