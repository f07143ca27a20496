// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames that wait until somebody reads them.

use core::{
    ops::{Deref, DerefMut},
    sync::atomic::{AtomicBool, Ordering},
};

use crtos_core::{
    mm::heap,
    sync::{SpinGuard, SpinLock},
};
use crtos_nic::inbox::Inbox;

use super::core::Message;
use crate::abi::Errno;

/// What waits.
pub struct Kept {
    inbox: SpinLock<Inbox<Message>>,
    /// Whether that is nothing, for those who do not hold the lock.
    is_empty: AtomicBool,
}

/// What waits, which nobody else changes meanwhile.
pub struct Guard<'a> {
    inbox: SpinGuard<'a, Inbox<Message>>,
    is_empty: &'a AtomicBool,
}

impl Kept {
    /// Room for so many bytes of frames.
    pub fn new(bytes: u32) -> Result<Self, Errno> {
        Ok(Self { inbox: SpinLock::new(inbox(bytes)?), is_empty: AtomicBool::new(true) })
    }

    /// Nobody else changes it until the guard is dropped. Any context.
    #[inline(always)]
    pub fn lock(&self) -> Guard<'_> {
        Guard { inbox: self.inbox.lock(), is_empty: &self.is_empty }
    }

    /// Whether nothing waits. Whoever is woken for a frame sees it.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::SeqCst)
    }
}

/// Room for so many bytes of frames.
pub fn inbox(bytes: u32) -> Result<Inbox<Message>, Errno> {
    if !heap::has_reserve() {
        return Err(Errno::ENOMEM);
    }
    Inbox::new(bytes as usize).ok_or(Errno::ENOMEM)
}

impl Deref for Guard<'_> {
    type Target = Inbox<Message>;

    fn deref(&self) -> &Self::Target {
        &self.inbox
    }
}

impl DerefMut for Guard<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inbox
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.is_empty.store(self.inbox.is_empty(), Ordering::Release);
    }
}
