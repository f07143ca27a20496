// SPDX-License-Identifier: MIT OR Apache-2.0
//! Queues of waiting threads, woken in the order of the level at which they began to wait, first
//! come first served within one level. Joining, leaving and waking one thread take constant time.

use super::scheduler::block_and;
use super::thread::{MAX_THREADS, by_id};
use super::{Thread, WakeReason, current};
use crate::arch::InterruptsOff;
use crate::sync::SpinLock;
use crate::time::Nanos;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use crtos_locks::{LevelQueue, Node};

/// A thread waits in one queue at a time: the links of all queues, each under the lock of the queue
/// that its thread is in.
static NODES: [Node; MAX_THREADS] = [const { Node::new() }; MAX_THREADS];
/// Whether a thread is in a queue, or about to be woken by somebody who took it off one.
static QUEUED: [AtomicBool; MAX_THREADS] = [const { AtomicBool::new(false) }; MAX_THREADS];

/// Whether the current thread is in a queue. Most are woken by who has taken them off theirs.
#[inline(always)]
fn is_queued() -> bool {
    QUEUED[usize::from(current().id.0)].load(Ordering::Acquire)
}

/// Threads that wait for something.
pub struct WaitQueue {
    waiters: SpinLock<LevelQueue>,
    /// How many they are, for those who do not hold the lock.
    count: AtomicUsize,
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
        Self { waiters: SpinLock::new(LevelQueue::new()), count: AtomicUsize::new(0) }
    }

    /// Sleeps until `condition` gives something, and returns that. Fails when the deadline passed
    /// or `interrupted` said true. Both are called again after each wake, in the context of the
    /// caller with no lock held, and must not wait in another queue. At first, and after a wake,
    /// `condition` is called while the caller is in no queue, so that it may wake others there.
    /// With a deadline of 0 it is called once.
    pub fn wait_until<R>(
        &self,
        deadline: Option<Nanos>,
        interrupted: impl Fn(&Thread) -> bool,
        mut condition: impl FnMut() -> Option<R>,
    ) -> Result<R, WaitError> {
        let mut is_queued = false;
        let error = loop {
            if let Some(result) = condition() {
                if is_queued && !self.remove() {
                    // Somebody chose this thread for something further: the next one gets that.
                    self.wake(1);
                }
                return Ok(result);
            }
            if !is_queued {
                if deadline == Some(Nanos::ZERO) {
                    return Err(WaitError::Timeout);
                }
                self.add();
                is_queued = true;
                continue;
            }
            if interrupted(&current()) {
                break WaitError::Interrupted;
            }
            if self.sleep(deadline) == WakeReason::Timeout {
                break WaitError::Timeout;
            }
            is_queued = false;
        };
        if !self.remove() {
            // Somebody chose this thread, which does not take what it was woken for: the next one
            // gets it.
            self.wake(1);
        }
        Err(error)
    }

    /// Adds the current thread if it is not there.
    fn add(&self) {
        let me = current();
        let mut waiters = self.waiters.lock();
        if !QUEUED[usize::from(me.id.0)].swap(true, Ordering::Relaxed) {
            waiters.push(&NODES, me.id.0, me.effective_level());
            // Before the caller looks at what it waits for: whoever changes that afterwards sees
            // it.
            self.count.store(waiters.len(), Ordering::SeqCst);
        }
    }

    /// Sleeps, as [`block`](super::block) does. Unless the deadline passed, the current thread is
    /// in the queue no more: who was woken need not queue again to look.
    #[inline(never)]
    fn sleep(&self, deadline: Option<Nanos>) -> WakeReason {
        block_and(deadline, |reason| {
            if reason != WakeReason::Timeout && is_queued() {
                self.take_out();
            }
        })
    }

    /// Removes the current thread; `false` if it is not there, because it was woken.
    #[inline(always)]
    fn remove(&self) -> bool {
        is_queued() && {
            let _interrupts = InterruptsOff::take();
            self.take_out()
        }
    }

    /// Takes the current thread out of the queue; `false` if it is not there. Interrupts off.
    #[inline(never)]
    fn take_out(&self) -> bool {
        let me = current().id.0;
        let mut waiters = self.waiters.lock_quietly();
        let queued = QUEUED[usize::from(me)].swap(false, Ordering::Relaxed);
        if queued {
            waiters.remove(&NODES, me);
            self.count.store(waiters.len(), Ordering::Relaxed);
        }
        queued
    }

    /// Wakes up to `count` of the threads that are there, highest level first, and takes them off
    /// the queue; returns how many. The lock is released after each. A few instructions if nobody
    /// is there. Any context.
    #[inline(always)]
    pub fn wake(&self, count: usize) -> usize {
        // What they wait for was changed before the look at whether they are there.
        fence(Ordering::SeqCst);
        match count {
            _ if self.is_empty() => 0,
            1 => self.wake_first().into(),
            _ => self.wake_some(count),
        }
    }

    #[inline(never)]
    fn wake_some(&self, count: usize) -> usize {
        let there = count.min(self.len());
        (0..there).take_while(|_| self.wake_first()).count()
    }

    /// Wakes the first one, if there is one.
    #[inline(never)]
    fn wake_first(&self) -> bool {
        let mut waiters = self.waiters.lock();
        let Some(thread) = waiters.pop(&NODES) else { return false };
        self.count.store(waiters.len(), Ordering::Relaxed);
        // SAFETY: it was queued, and does not find out that it is not before the queue is unlocked.
        unsafe { by_id(thread) }.wake_quietly();
        // Until this is stored and the queue is not locked, the thread cannot find out and end.
        QUEUED[usize::from(thread)].store(false, Ordering::Release);
        true
    }

    /// Wakes all. Any context.
    pub fn wake_all(&self) -> usize {
        self.wake(usize::MAX)
    }

    /// How many wait just now.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether nobody waits just now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
