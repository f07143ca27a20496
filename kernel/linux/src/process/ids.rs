// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user and group ids of a thread, as Linux has them (credentials(7)).
//!
//! In Linux they are each thread's own, and nobody changes them but the thread itself by a system
//! call, unless they are those of a user namespace. So what was asked for once is known until the
//! next such call, and a program that sends itself a signal with its user id (sigqueue(3)) need not
//! wait for Linux.

use core::sync::atomic::{AtomicU64, Ordering};

/// One of the ids.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Id {
    /// The real user id.
    User,
    /// The effective user id.
    EffectiveUser,
    /// The real group id.
    Group,
    /// The effective group id.
    EffectiveGroup,
}

/// How many there are.
const COUNT: usize = 4;
/// In place of an id that is not known: no id has more than 32 bits.
const UNKNOWN: u64 = u64::MAX;

/// What is known of a thread's ids. Only the thread itself uses them, once it runs.
pub struct Ids([AtomicU64; COUNT]);

impl Ids {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(UNKNOWN) }; COUNT])
    }

    /// The id, if it is known. Any context.
    #[inline]
    pub fn get(&self, which: Id) -> Option<u32> {
        u32::try_from(self.0[which as usize].load(Ordering::Relaxed)).ok()
    }

    /// This is the id.
    pub fn note(&self, which: Id, id: u32) {
        self.0[which as usize].store(id.into(), Ordering::Relaxed);
    }

    /// The thread has the ids of the one that has made it.
    pub fn inherit(&self, parent: &Self) {
        for (own, parent) in self.0.iter().zip(&parent.0) {
            own.store(parent.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The thread may change them.
    pub fn forget(&self) {
        self.0.iter().for_each(|id| id.store(UNKNOWN, Ordering::Relaxed));
    }
}
