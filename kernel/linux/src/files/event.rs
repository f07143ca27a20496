// SPDX-License-Identifier: MIT OR Apache-2.0
//! eventfd: a counter to wait for.

use crtos_abi::UserAddr;

use core::sync::atomic::{AtomicBool, Ordering};

use crtos_core::{arch::user_memory, personality::FastResult, sync::SpinLock, task::WaitQueue};

use super::{Events, Memory, Watchers, wait};
use crate::abi::{Errno, SysResult};

/// The counter stays below this.
const LIMIT: u64 = u64::MAX;

/// An eventfd.
pub struct Event {
    counter: SpinLock<u64>,
    /// EFD_SEMAPHORE: a read takes one.
    semaphore: bool,
    to_read: WaitQueue,
    to_write: WaitQueue,
    watchers: Watchers,
    /// It has left the realm: whoever still uses it makes the call again. Set with the lock held.
    has_left: AtomicBool,
}

impl Event {
    /// A counter.
    pub fn new(value: u64, semaphore: bool) -> Self {
        Self {
            counter: SpinLock::new(value),
            semaphore,
            to_read: WaitQueue::new(),
            to_write: WaitQueue::new(),
            watchers: Watchers::new(),
            has_left: AtomicBool::new(false),
        }
    }

    /// Whether a read takes one.
    pub fn is_semaphore(&self) -> bool {
        self.semaphore
    }

    /// It has left the realm, and no table has it any more: who found it there before makes the
    /// call again. Returns what it counted.
    pub fn leave(&self) -> u64 {
        let counted = {
            let mut counter = self.counter.lock();
            self.has_left.store(true, Ordering::Relaxed);
            core::mem::take(&mut *counter)
        };
        self.to_read.wake_all();
        self.to_write.wake_all();
        counted
    }

    /// Whether it is here still. The lock is held.
    fn check_here(&self) -> Result<(), Errno> {
        match self.has_left.load(Ordering::Relaxed) {
            true => Err(Errno::RESTART_ALWAYS),
            false => Ok(()),
        }
    }

    /// What a read takes of `value`; `None` if there is nothing.
    fn share(&self, value: u64) -> Option<u64> {
        let share = if self.semaphore { value.min(1) } else { value };
        (share > 0).then_some(share)
    }

    /// Takes the value, or one of it.
    fn take(&self) -> Option<SysResult> {
        let mut counter = self.counter.lock();
        if let Err(left) = self.check_here() {
            return Some(Err(left));
        }
        let taken = self.share(*counter)?;
        *counter -= taken;
        Some(Ok(taken))
    }

    /// Adds, if the sum stays below the limit.
    fn add(&self, value: u64) -> Option<Result<(), Errno>> {
        let mut counter = self.counter.lock();
        if let Err(left) = self.check_here() {
            return Some(Err(left));
        }
        let sum = counter.checked_add(value).filter(|&sum| sum < LIMIT)?;
        *counter = sum;
        Some(Ok(()))
    }

    fn announce(&self, read: bool) {
        if read {
            self.to_write.wake_all();
            self.watchers.notify(Events::OUT);
        } else {
            self.to_read.wake(if self.semaphore { usize::MAX } else { 1 });
            self.watchers.notify(Events::IN);
        }
    }

    /// Adds one, unless there is no room, and wakes one of those who read. In an interrupt it tells
    /// one watcher at once, and each of the others by a further one. Any context.
    pub fn signal(&self) {
        if let Some(Ok(())) = self.add(1) {
            self.to_read.wake(1);
            self.watchers.notify(Events::IN);
        }
    }

    /// read(2).
    pub fn read(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        if memory.left() < 8 {
            return Err(Errno::EINVAL);
        }
        let value = wait::take(&self.to_read, nonblocking, || self.take())??;
        self.announce(true);
        if memory.write(&value.to_le_bytes()) < 8 { Err(Errno::EFAULT) } else { Ok(8) }
    }

    /// write(2).
    pub fn write(&self, memory: &mut Memory, nonblocking: bool) -> SysResult {
        if memory.left() < 8 {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; 8];
        if memory.read(&mut bytes) < 8 {
            return Err(Errno::EFAULT);
        }
        let value = u64::from_le_bytes(bytes);
        if value == u64::MAX {
            return Err(Errno::EINVAL);
        }
        wait::take(&self.to_write, nonblocking, || self.add(value))??;
        if value > 0 {
            self.announce(false);
        }
        Ok(8)
    }

    /// As [`Event::read`], on the fast path.
    #[inline(never)]
    pub fn read_at_once(&self, buffer: UserAddr, length: u64) -> FastResult {
        // Several are woken one by one on the full path.
        if length < 8
            || !user_memory::is_range(buffer, length)
            || self.to_write.len() > 1
            || !self.watchers.are_few()
        {
            return FastResult::FULL;
        }
        {
            let mut counter = self.counter.lock_quietly();
            let Some(value) = self.share(*counter) else { return FastResult::FULL };
            if !user_memory::write_at_once(buffer, &value.to_le_bytes()) {
                return FastResult::FULL;
            }
            *counter -= value;
        }
        self.announce(true);
        FastResult::done(8)
    }

    /// As [`Event::write`], on the fast path.
    #[inline(never)]
    pub fn write_at_once(&self, buffer: UserAddr, length: u64) -> FastResult {
        let mut bytes = [0; 8];
        if length < 8
            || !user_memory::is_range(buffer, length)
            || self.to_read.len() > 1
            || !self.watchers.are_few()
            || !user_memory::read_at_once(buffer, &mut bytes)
        {
            return FastResult::FULL;
        }
        let value = u64::from_le_bytes(bytes);
        if value == u64::MAX || !matches!(self.add(value), Some(Ok(()))) {
            return FastResult::FULL;
        }
        if value > 0 {
            self.announce(false);
        }
        FastResult::done(8)
    }

    /// What it is ready for.
    pub fn ready(&self) -> Events {
        let counter = *self.counter.lock();
        let mut events = Events::empty();
        events.set(Events::IN, counter > 0);
        events.set(Events::OUT, counter < LIMIT - 1);
        events.set(Events::ERROR, counter == LIMIT);
        events
    }

    /// Who is told of changes.
    pub fn watchers(&self) -> &Watchers {
        &self.watchers
    }
}
