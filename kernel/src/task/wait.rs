// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues of waiting threads, woken in the order of their level, first come first served within one
//! level.

use super::{Thread, WakeReason, block, current};
use crate::sync::SpinLock;
use crate::time::Nanos;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Threads that wait for something.
pub struct WaitQueue {
    waiters: SpinLock<Vec<Arc<Thread>>>,
}

/// Why a wait ended without its condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitError {
    /// The deadline passed.
    Timeout,
    /// `interrupted` said true.
    Interrupted,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { waiters: SpinLock::new(Vec::new()) }
    }

    /// Sleeps until `condition` gives something, and returns that. Fails when the deadline passed
    /// or `interrupted` said true. Both are called again after each wake, in the context of the
    /// caller with no lock held.
    pub fn wait_until<R>(
        &self,
        deadline: Option<Nanos>,
        interrupted: impl Fn(&Thread) -> bool,
        mut condition: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitError> {
        let error = loop {
            self.add();
            if let Some(result) = condition() {
                self.remove();
                return Ok(result);
            }
            if interrupted(&current()) {
                break WaitError::Interrupted;
            }
            if block(deadline) == WakeReason::Timeout {
                break WaitError::Timeout;
            }
        };
        if !self.remove() {
            // Somebody chose this thread, which does not take what it was woken for: the next one
            // gets it.
            self.wake(1);
        }
        Err(error)
    }

    /// Adds the current thread if it is not there; it leaves by [`WaitQueue::remove`]. For threads
    /// that wait on several queues at once: add to all, check all conditions,
    /// [`crate::task::block`], remove from all.
    pub fn add(&self) {
        let me = current().arc();
        let mut waiters = self.waiters.lock();
        if !waiters.iter().any(|other| Arc::ptr_eq(other, &me)) {
            waiters.push(me);
        }
    }

    /// Removes the current thread; `false` if it is not there, because it was woken.
    pub fn remove(&self) -> bool {
        let me = current();
        let mut waiters = self.waiters.lock();
        let place = waiters.iter().position(|other| core::ptr::eq(&**other, &*me));
        place.map(|place| waiters.remove(place)).is_some()
    }

    /// Wakes up to `count` threads, highest level first, and takes them off the queue; returns how
    /// many. Any context.
    pub fn wake(&self, count: usize) -> usize {
        let mut waiters = self.waiters.lock();
        let mut woken = 0;
        while woken < count {
            let mut best: Option<(usize, crtos_sched::Level)> = None;
            for (place, thread) in waiters.iter().enumerate() {
                let level = thread.effective_level();
                if best.is_none_or(|(_, highest)| level > highest) {
                    best = Some((place, level));
                }
            }
            let Some((place, _)) = best else { break };
            waiters.remove(place).wake();
            woken += 1;
        }
        woken
    }

    /// Wakes all. Any context.
    pub fn wake_all(&self) -> usize {
        self.wake(usize::MAX)
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.lock().is_empty()
    }
}
