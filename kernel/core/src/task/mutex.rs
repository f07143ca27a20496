// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sleeping lock with priority inheritance: the holder runs at the level of its highest waiter,
//! and so does whoever that holder waits for. It is handed over to the highest waiter, first come
//! first served within one level.

use super::inheritance::{self, graph, inherit, settle};
use super::scheduler;
use super::thread::{by_id, current};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use crtos_locks::inheritance::Lock;

/// In the word of a lock: somebody waits, so that it changes only under the lock of the graph. The
/// rest of the word is 0 or 1 + the number of the owner.
const WANTED: u32 = 1 << 31;

/// A lock whose waiters sleep. Thread context only. Without competition, taking it and giving it
/// back are one atomic instruction each.
pub struct Mutex<T> {
    word: AtomicU32,
    /// Its number in the graph, while it is wanted.
    lock: AtomicU16,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: a mutex that is moved is not locked.
unsafe impl<T: Send> Send for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), lock: AtomicU16::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes it; may sleep. Wakes that come meanwhile are kept for the next [`super::block`].
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let own = own_word();
        if !self.change(0, own) {
            self.wait();
        }
        MutexGuard { mutex: self, own, not_send: PhantomData }
    }

    /// Takes it if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Not `then_some`: a guard that is made and dropped would unlock what somebody else holds.
        let own = own_word();
        self.change(0, own).then(|| MutexGuard { mutex: self, own, not_send: PhantomData })
    }

    fn change(&self, from: u32, to: u32) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        let me = current();
        let owner = {
            let mut graph = graph();
            loop {
                let word = self.word.load(Ordering::Relaxed);
                if word == 0 {
                    if self.change(0, own_word()) {
                        return;
                    }
                } else if self.change(word, word | WANTED) {
                    let owner = ((word & !WANTED) - 1) as u16;
                    assert!(owner != me.id.0, "a thread takes a lock that it holds");
                    let lock =
                        (word & WANTED != 0).then(|| Lock(self.lock.load(Ordering::Relaxed)));
                    match graph.enqueue(me.id.0, me.scheduling().level, lock, owner) {
                        Ok(lock) => self.lock.store(lock.0, Ordering::Relaxed),
                        Err(_) => panic!("locks of the kernel wait for each other"),
                    }
                    break owner;
                }
            }
        };
        settle(owner);
        scheduler::wait_for_grant();
    }

    #[cold]
    fn hand_over(&self) {
        let mut graph = inheritance::graph();
        let lock = Lock(self.lock.load(Ordering::Relaxed));
        let Some(heir) = graph.hand_over(lock) else { return };
        let wanted = if graph.is_wanted(lock) { WANTED } else { 0 };
        self.word.store((1 + u32::from(heir)) | wanted, Ordering::Release);
        // Neither waits for anything now: one step each.
        graph.settle(heir, 1, inherit);
        // SAFETY: the heir waits for this.
        scheduler::grant(unsafe { by_id(heir) });
        graph.settle(current().id.0, 1, inherit);
    }
}

/// The word of an unwanted lock of the calling thread.
fn own_word() -> u32 {
    1 + u32::from(current().id.0)
}

/// A held [`Mutex`].
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// The word of the mutex while nobody waits.
    own: u32,
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
        // SAFETY: the guard, which is borrowed exclusively, is the only way to the value.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        if !self.mutex.change(self.own, 0) {
            self.mutex.hand_over();
        }
    }
}
