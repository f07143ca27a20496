// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sleeping lock with priority inheritance: the holder runs at the level of its highest waiter,
//! and so does whoever that holder waits for. It is handed over to the highest waiter, first come
//! first served within one level.

use super::scheduler::{self, NOBODY};
use super::thread::{MAX_THREADS, current};
use crate::sync::SpinLock;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU16, Ordering};

/// A thread waits for one lock at a time: the links of all lists of waiters. Protected by the lock
/// whose list they are in.
static NEXT: [AtomicU16; MAX_THREADS] = [const { AtomicU16::new(NOBODY) }; MAX_THREADS];

fn next(thread: u16) -> u16 {
    NEXT[usize::from(thread)].load(Ordering::Relaxed)
}

fn set_next(thread: u16, next: u16) {
    NEXT[usize::from(thread)].store(next, Ordering::Relaxed);
}

struct State {
    owner: u16,
    /// The first of the waiters, in the order in which they came.
    waiters: u16,
}

impl State {
    fn iter(&self) -> impl Iterator<Item = u16> + use<> {
        let somebody = |thread| (thread != NOBODY).then_some(thread);
        core::iter::successors(somebody(self.waiters), move |&thread| somebody(next(thread)))
    }

    fn push(&mut self, thread: u16) {
        set_next(thread, NOBODY);
        match self.iter().last() {
            Some(last) => set_next(last, thread),
            None => self.waiters = thread,
        }
    }

    /// Takes out the first of the highest level.
    fn pop(&mut self) -> Option<u16> {
        let mut best: Option<(u16, crtos_sched::Level)> = None;
        for thread in self.iter() {
            let level = scheduler::level_of(thread);
            if best.is_none_or(|(_, highest)| level > highest) {
                best = Some((thread, level));
            }
        }
        let (thread, _) = best?;
        match self.iter().find(|&other| next(other) == thread) {
            Some(previous) => set_next(previous, next(thread)),
            None => self.waiters = next(thread),
        }
        Some(thread)
    }
}

/// A lock whose waiters sleep. Thread context only.
pub struct Mutex<T> {
    state: SpinLock<State>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: a mutex that is moved is not locked.
unsafe impl<T: Send> Send for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(value: T) -> Self {
        Self {
            state: SpinLock::new(State { owner: NOBODY, waiters: NOBODY }),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes it; may sleep. Wakes that come meanwhile are kept for the next [`super::block`].
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let me = current().id;
        let mut state = self.state.lock();
        if state.owner == NOBODY {
            state.owner = me.0;
        } else {
            assert!(state.owner != me.0, "a thread takes a lock that it holds");
            let first = state.waiters == NOBODY;
            state.push(me.0);
            scheduler::wait_for_lock(me, state.owner, first);
            drop(state);
            scheduler::wait_for_grant();
        }
        MutexGuard { mutex: self, not_send: PhantomData }
    }

    /// Takes it if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let mut state = self.state.lock();
        if state.owner != NOBODY {
            return None;
        }
        state.owner = current().id.0;
        Some(MutexGuard { mutex: self, not_send: PhantomData })
    }

    fn unlock(&self) {
        let mut state = self.state.lock();
        let me = current().id;
        let heir = state.pop();
        state.owner = heir.unwrap_or(NOBODY);
        if let Some(heir) = heir {
            scheduler::hand_over(me, heir, state.iter());
        }
    }
}

/// A held [`Mutex`].
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    not_send: PhantomData<*mut ()>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only way to the value while it exists.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.mutex.unlock();
    }
}
