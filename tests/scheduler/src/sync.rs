// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spin locks. When one is released, other CPUs may go on. Nobody waits for one: it would be for
//! ever.

use core::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

use crate::machine;

pub struct SpinLock<T>(Mutex<T>);

pub struct QuietGuard<'a, T>(Option<MutexGuard<'a, T>>);

impl<T> SpinLock<T> {
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub fn lock_quietly(&self) -> QuietGuard<'_, T> {
        QuietGuard(Some(self.0.try_lock().expect("a lock that is not held")))
    }

    pub fn lock(&self) -> QuietGuard<'_, T> {
        self.lock_quietly()
    }
}

impl<T> Deref for QuietGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is held until it is dropped")
    }
}

impl<T> DerefMut for QuietGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is held until it is dropped")
    }
}

impl<T> Drop for QuietGuard<'_, T> {
    fn drop(&mut self) {
        self.0 = None;
        machine::others_go_on();
    }
}
