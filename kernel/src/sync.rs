// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that do not sleep.

use core::ops::{Deref, DerefMut};
use core::marker::PhantomData;

/// A spin lock that keeps interrupts off while it is held: for short, bounded sections. Any context.
pub struct SpinLock<T> {
    value: core::cell::UnsafeCell<T>,
}
// SAFETY: skeleton
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { value: core::cell::UnsafeCell::new(value) }
    }

    /// Takes the lock. Dropping the guard restores the interrupt flag and lets a pending preemption happen.
    pub fn lock(&self) -> SpinGuard<'_, T> {
        unimplemented!()
    }
}

/// A held [`SpinLock`].
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: skeleton
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: skeleton
        unsafe { &mut *self.lock.value.get() }
    }
}

/// While one exists, the thread is not preempted; interrupts stay as they are. Keep it short.
pub struct PreemptGuard(PhantomData<*mut ()>);

impl PreemptGuard {
    /// Holds preemption off until dropped.
    pub fn new() -> Self {
        unimplemented!()
    }
}
