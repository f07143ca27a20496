// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread has asked for of what the processor executes ahead.

use core::sync::atomic::{AtomicU32, Ordering};

use crtos_core::task;
use linux_raw_sys::prctl::PR_SPEC_ENABLE;

/// What a thread has asked for: one of `PR_SPEC_ENABLE`, `PR_SPEC_DISABLE` and
/// `PR_SPEC_FORCE_DISABLE`. Threads and children that it starts have it too.
pub struct Speculation(AtomicU32);

impl Speculation {
    /// Nothing was asked for.
    pub const fn new() -> Self {
        Self(AtomicU32::new(PR_SPEC_ENABLE))
    }

    /// What `other` has.
    pub fn of(other: &Self) -> Self {
        Self(AtomicU32::new(other.get()))
    }

    /// As the thread has it that starts this one.
    pub fn inherit(&self, parent: &Self) {
        self.0.store(parent.get(), Ordering::Relaxed);
    }

    /// What was asked for.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Has the calling thread, whose this is, have what it asks for.
    pub fn set(&self, wanted: u32) {
        self.0.store(wanted, Ordering::Relaxed);
        self.begin();
    }

    /// Has the calling thread, whose this is, kept apart from others if that was asked for.
    pub fn begin(&self) {
        task::set_guarded(self.get() != PR_SPEC_ENABLE);
    }
}
