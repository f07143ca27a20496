// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a file is ready for, and who is told when that changes: threads in poll or select, members of an epoll set.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicUsize, Ordering, fence};

use bitflags::bitflags;

use super::epoll::Set;
use crate::{mm::heap, sync::SpinLock, syscall::Errno, task::Thread};

bitflags! {
    /// The events of poll(2) and epoll(7), by their numbers.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Events: u32 {
        /// There is something to read.
        const IN = 1;
        /// Urgent data.
        const PRIORITY = 2;
        /// A write does not block.
        const OUT = 4;
        /// Nobody reads what is written. Always reported.
        const ERROR = 8;
        /// Nobody writes any more. Always reported.
        const HANG_UP = 0x10;
        /// POLLRDNORM.
        const READ_NORMAL = 0x40;
        /// POLLWRNORM.
        const WRITE_NORMAL = 0x100;
    }
}

/// Who is told of a change. It looks at the file itself.
pub trait Watcher: Send + Sync {
    /// The file may be ready for `events`. Any context; interrupts off; must not sleep or allocate.
    fn notify(&self, events: Events);

    /// Whether it is to [`end`](Self::end) when the file at an address ends: the watchers of a pipe are those of all its files.
    fn ends_with(&self, _file: usize) -> bool {
        false
    }

    /// The file has ended. Thread context; may sleep.
    fn end(&self) {}
}

/// What can be watched: an open file description, or an epoll set.
pub trait Source: Send + Sync {
    /// What it is ready for now. Thread context; may sleep.
    fn ready(&self) -> Events;

    /// Who is told when that changes; `None` for what is always ready.
    fn watchers(&self) -> Option<&Watchers>;

    /// Has `watcher` be told. Thread context; may sleep.
    fn watch(&self, watcher: Arc<dyn Watcher>) -> Result<(), Errno> {
        self.watchers().map_or(Ok(()), |watchers| watchers.add(watcher))
    }

    /// Of what its watchers are told, the events that concern it.
    fn heard(&self) -> Events;

    /// The set that it is.
    fn as_set(&self) -> Option<&Set> {
        None
    }
}

impl Watcher for Thread {
    fn notify(&self, _: Events) {
        self.wake();
    }
}

/// Watchers that are told with interrupts off, where they were on before.
const STEP: usize = 3;

/// Watchers that are looked at with interrupts off to find one.
const SEARCH: usize = 32;

/// The watchers of a file. Telling them takes steps in proportion to their number, which is that of the threads that poll the file
/// at the same time and the epoll sets it belongs to.
pub struct Watchers {
    list: SpinLock<Vec<Arc<dyn Watcher>>>,
    /// How many they are, for those who do not hold the lock.
    count: AtomicUsize,
}

impl Default for Watchers {
    fn default() -> Self {
        Self::new()
    }
}

impl Watchers {
    /// Nobody watches.
    pub const fn new() -> Self {
        Self { list: SpinLock::new(Vec::new()), count: AtomicUsize::new(0) }
    }

    /// Adds a watcher. Allocates only when there are more than ever before. Thread context.
    pub fn add(&self, watcher: Arc<dyn Watcher>) -> Result<(), Errno> {
        loop {
            let wanted = {
                let mut list = self.list.lock();
                if list.len() < list.capacity() {
                    list.push(watcher);
                    // Before the caller looks at the file: whoever changes that afterwards sees it.
                    self.count.store(list.len(), Ordering::SeqCst);
                    return Ok(());
                }
                list.capacity() * 2
            };
            if !heap::has_reserve() {
                return Err(Errno::ENOMEM);
            }
            let mut larger = Vec::new();
            larger.try_reserve_exact(wanted.max(2)).map_err(|_| Errno::ENOMEM)?;
            let mut list = self.list.lock();
            if list.capacity() < larger.capacity() {
                larger.append(&mut list);
                core::mem::swap(&mut *list, &mut larger);
            }
            drop(list);
            drop(larger);
        }
    }

    /// Removes a watcher that was added.
    pub fn remove(&self, watcher: &Arc<dyn Watcher>) {
        drop(self.take(|other| core::ptr::addr_eq(&raw const **other, &raw const **watcher)));
    }

    /// Takes out one that is meant.
    fn take(&self, is_meant: impl Fn(&Arc<dyn Watcher>) -> bool) -> Option<Arc<dyn Watcher>> {
        // From the last to the first: the place of one that goes meanwhile is taken by one that was looked at already, or by one
        // that is looked at there.
        let mut left = usize::MAX;
        while left > 0 {
            let mut list = self.list.lock();
            left = left.min(list.len());
            let rest = left.saturating_sub(SEARCH);
            if let Some(at) = list[rest..left].iter().rposition(&is_meant) {
                let taken = list.swap_remove(rest + at);
                self.count.store(list.len(), Ordering::Relaxed);
                return Some(taken);
            }
            left = rest;
        }
        None
    }

    /// The file at an address ends: so do those who watch it for as long as it is there. Thread context; may sleep.
    pub fn close(&self, file: usize) {
        while self.count.load(Ordering::Relaxed) > 0 {
            let Some(ended) = self.take(|watcher| watcher.ends_with(file)) else { return };
            ended.end();
        }
    }

    /// Tells all. A few instructions if nobody is there. Any context.
    #[inline(always)]
    pub fn notify(&self, events: Events) {
        // The file was changed before the look at whether they are there.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) > 0 {
            self.notify_all(events);
        }
    }

    #[inline(never)]
    fn notify_all(&self, events: Events) {
        // From the last to the first: who goes meanwhile leaves their place to one that was told already, and who comes
        // looks at the file afterwards.
        let mut left = usize::MAX;
        while left > 0 {
            let list = self.list.lock();
            left = left.min(list.len());
            let rest = left.saturating_sub(STEP);
            list[rest..left].iter().rev().for_each(|watcher| watcher.notify(events));
            left = rest;
        }
    }
}
