// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that do not sleep. While one is held interrupts are off, and with them preemption: there
//! is no other way to hold it off. [`crate::sections`] measures for how long.

use crate::arch::{cpu, percpu};
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

/// A spin lock that keeps interrupts off while it is held: for short, bounded sections. Any
/// context. CPUs get it in the order in which they came, so that each waits for at most one section
/// of every other CPU.
pub struct SpinLock<T> {
    /// The next number to draw.
    next: AtomicU32,
    /// The number whose turn it is.
    serving: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Self {
        Self { next: AtomicU32::new(0), serving: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Takes the lock. Dropping the guard restores the interrupt flag and lets a pending preemption
    /// happen.
    #[inline(always)]
    pub fn lock(&self) -> SpinGuard<'_, T> {
        let interrupts = cpu::disable_interrupts();
        SpinGuard { quiet: ManuallyDrop::new(self.lock_quietly()), interrupts }
    }

    /// As [`SpinLock::lock`] where interrupts are off and stay so.
    #[inline(always)]
    pub fn lock_quietly(&self) -> QuietGuard<'_, T> {
        let mine = self.next.fetch_add(1, Ordering::Relaxed);
        while self.serving.load(Ordering::Acquire) != mine {
            core::hint::spin_loop();
        }
        QuietGuard { lock: self, not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        let interrupts = cpu::disable_interrupts();
        let free = self.serving.load(Ordering::Acquire);
        let drawn = self.next.compare_exchange(
            free,
            free.wrapping_add(1),
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if drawn.is_err() {
            cpu::restore_interrupts(interrupts);
            return None;
        }
        let quiet = QuietGuard { lock: self, not_send: PhantomData };
        Some(SpinGuard { quiet: ManuallyDrop::new(quiet), interrupts })
    }
}

/// A held [`SpinLock`]; interrupts were off before it was taken, and stay so.
pub struct QuietGuard<'a, T> {
    lock: &'a SpinLock<T>,
    not_send: PhantomData<*mut ()>,
}

impl<T> Deref for QuietGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard is the only way to the value while it exists.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for QuietGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard, which is borrowed exclusively, is the only way to the value.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for QuietGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Only the holder writes this word.
        let mine = self.lock.serving.load(Ordering::Relaxed);
        self.lock.serving.store(mine.wrapping_add(1), Ordering::Release);
    }
}

/// A held [`SpinLock`].
pub struct SpinGuard<'a, T> {
    quiet: ManuallyDrop<QuietGuard<'a, T>>,
    interrupts: bool,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.quiet
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.quiet
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: it is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.quiet) }
        if self.interrupts {
            percpu::open();
        }
    }
}
