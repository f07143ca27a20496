// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that do not sleep, and holding off preemption.

use crate::arch::{cpu, percpu};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicBool, Ordering};

/// A spin lock that keeps interrupts off while it is held: for short, bounded sections. Any
/// context.
pub struct SpinLock<T> {
    held: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { held: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. Dropping the guard restores the interrupt flag and lets a pending preemption
    /// happen.
    pub fn lock(&self) -> SpinGuard<'_, T> {
        let interrupts = cpu::disable_interrupts();
        while self
            .held
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            while self.held.load(Ordering::Relaxed) {
                core::hint::spin_loop();
            }
        }
        SpinGuard { lock: self, interrupts, not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let interrupts = cpu::disable_interrupts();
        if self.held.swap(true, Ordering::Acquire) {
            cpu::restore_interrupts(interrupts);
            return None;
        }
        Some(SpinGuard { lock: self, interrupts, not_send: PhantomData })
    }
}

/// A held [`SpinLock`].
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    interrupts: bool,
    not_send: PhantomData<*mut ()>,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only way to the value while it exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.held.store(false, Ordering::Release);
        if self.interrupts {
            percpu::preempt_if_needed();
            cpu::restore_interrupts(true);
        }
    }
}

/// While one exists, the thread is not preempted; interrupts stay as they are. Keep it short.
pub struct PreemptGuard(PhantomData<*mut ()>);

impl PreemptGuard {
    /// Holds preemption off until dropped.
    #[expect(clippy::new_without_default, reason = "a guard has no default")]
    pub fn new() -> Self {
        percpu::hold_preemption();
        Self(PhantomData)
    }
}

impl Drop for PreemptGuard {
    fn drop(&mut self) {
        percpu::release_preemption();
        let interrupts = cpu::disable_interrupts();
        if interrupts {
            percpu::preempt_if_needed();
        }
        cpu::restore_interrupts(interrupts);
    }
}
